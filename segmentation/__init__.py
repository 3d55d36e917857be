"""Segmentation without training: attention masks, their scores, label propagation, object discovery."""
