"""The commands of `python -m training`: they parse, call and print."""
