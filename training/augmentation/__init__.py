"""Crops, colors and random numbers: an image becomes part of a batch."""
