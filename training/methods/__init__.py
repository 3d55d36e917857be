"""Pretraining methods: each file has a class that is the algorithm of its paper."""
