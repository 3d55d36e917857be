"""Backbones, weights, checkpoints and exports: from a name or a file to a module."""
