"""Fourteen lessons on the paper, as text notebooks, and what they draw and check with."""
