"""Compute attention maps and features of images: backbones, weights, collections, predictor."""
