"""From an image to attention maps and features: backbones, weights, collections, predictor."""
