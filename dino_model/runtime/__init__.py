"""Devices, processes, files, outputs and messages: independent of models and data."""
