"""Laws of the paper that short runs can show: `python -m training study`."""
