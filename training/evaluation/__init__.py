"""Protocols that measure frozen features."""
