"""What an installed wheel adds to everybody's site-packages: this package, and `dino_model`.

The packages `app`, `segmentation` and `training` have names that others may use too. In a wheel they lie
in `dino_lab/rooms`, and are importable only in a process that `dino_lab` has started; in a checkout they
lie where they always did, beside this folder.
"""

from pathlib import Path

_INSTALLED = Path(__file__).parent / "rooms"

ROOMS = _INSTALLED if _INSTALLED.is_dir() else Path(__file__).parents[1]
"""The folder that holds `app`, `segmentation` and `training`."""
