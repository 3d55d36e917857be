"""One module per command of `python -m segmentation`: a frozen dataclass whose `run` is the command."""
