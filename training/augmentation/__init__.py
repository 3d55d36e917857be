"""From an image to a batch of augmented crops."""
