"""`python docs/lessons.py`: execute the lessons in parallel, into the cache of the documentation."""

import hashlib
import os
import sys
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
PACKAGES = ("dino_model", "segmentation", "training", "notebooks")


def fingerprint() -> str:
    """Hash everything that the outputs of a lesson depend on besides the lesson itself."""
    digest = hashlib.sha256()
    for weights in sorted((ROOT / "dino_model").glob("*/model.safetensors")):
        digest.update(weights.read_bytes())
    for package in PACKAGES:
        files = [file for kind in ("*.py", "captions.toml") for file in (ROOT / package).rglob(kind)]
        for file in sorted(files):
            if package != "notebooks" or "_" not in file.name[:2]:
                digest.update(str(file.relative_to(ROOT)).encode() + file.read_bytes())
    return digest.hexdigest()[:16]


def cache_folder() -> Path:
    """Return the folder of the outputs that belong to the present code and model."""
    return ROOT / "build" / "lessons" / fingerprint()


def execute_missing() -> None:
    """Execute the lessons whose outputs are not in the cache, without a data set.

    Raises:
        LessonError: A cell fails.
    """
    from jupyter_cache import get_cache

    from notebooks.execute import execute, lessons, read

    cache = get_cache(cache_folder())
    known = {record.hashkey for record in cache.list_cache_records()}
    missing = [lesson for lesson in lessons() if cache.create_hashed_notebook(read(lesson))[1] not in known]
    with ThreadPoolExecutor(os.cpu_count()) as pool:
        for executed in pool.map(execute, missing):
            cache.cache_notebook_file(str(executed), check_validity=False, overwrite=True)


if __name__ == "__main__":
    sys.path.insert(0, str(ROOT))
    os.environ.pop("DINO_DATA", None)
    execute_missing()
