"""The book: all that is written, measured and drawn here, in one static site."""
