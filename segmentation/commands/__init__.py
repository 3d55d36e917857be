"""Commands of `python -m segmentation`: each module has a frozen dataclass whose `run` is the command."""
