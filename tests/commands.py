"""Run the commands of the packages in this process; errors are raised."""

from functools import partial

import dino_model.commands
import segmentation.commands
import training.commands
from dino_model.runtime.dispatch import dispatch

PACKAGES = {
    "dino_model": dino_model.commands.COMMANDS,
    "segmentation": segmentation.commands.COMMANDS,
    "training": training.commands.COMMANDS,
}
dino = partial(dispatch, "dino_model", PACKAGES["dino_model"])
segment = partial(dispatch, "segmentation", PACKAGES["segmentation"])
train = partial(dispatch, "training", PACKAGES["training"])
