"""Commands of `python -m segmentation`."""

COMMANDS = {
    "attention": "segmentation.commands.attention:Attention",
    "voc": "segmentation.commands.voc:Voc",
    "davis": "segmentation.commands.davis:Davis",
    "score": "segmentation.commands.davis:Score",
    "video": "segmentation.commands.video:Video",
    "match": "segmentation.commands.match:Match",
    "discover": "segmentation.commands.discover:Discover",
    "head fit": "segmentation.commands.head:Fit",
    "head apply": "segmentation.commands.head:Apply",
    "head score": "segmentation.commands.head:HeadScore",
    "head curve": "segmentation.commands.head:Curve",
}
"""Implementation of each command, see `dino_model.runtime.dispatch`."""
