"""Attention, features and search: from a model and images to maps and vectors."""
