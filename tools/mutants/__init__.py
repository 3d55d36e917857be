"""Mutants: one-line faults that the tests must notice."""
