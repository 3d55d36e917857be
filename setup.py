"""Where the packages of a checkout go in a wheel; everything else stands in pyproject.toml."""

from setuptools import find_packages, setup

ROOMS = ("app", "segmentation", "training")
"""Names that others may use too: they go into dino_lab/rooms, see dino_lab/__init__.py."""

setup(
    packages=[
        "dino_lab",
        *find_packages(include=["dino_model*"]),
        *(f"dino_lab.rooms.{name}" for name in find_packages(include=[f"{room}*" for room in ROOMS])),
    ],
    package_dir={f"dino_lab.rooms.{room}": room for room in ROOMS},
)
