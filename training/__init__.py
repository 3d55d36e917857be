"""Pretraining without labels, and what frozen features are worth."""
