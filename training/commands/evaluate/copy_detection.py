"""`python -m training evaluate copy-detection`, `… synthetic` and `… duplicates`."""

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import asdict, dataclass, field
from hashlib import blake2b
from pathlib import Path
from tempfile import TemporaryDirectory

import numpy as np
import torch
from numpy.typing import NDArray
from PIL import Image
from tyro.conf import Positional

from dino_model import files
from dino_model.features import CLS, FeatureType, ImageFeatures, has_cls_tokens
from dino_model.images import Images, open_images
from dino_model.views import View
from dino_model.weights import LoadedModel
from training.commands.evaluate import pictures
from training.commands.evaluate.base import Evaluation, Figures
from training.evaluation.copy_detection import (
    COPIES,
    DEPTH,
    Formula,
    alike,
    average_precisions,
    copy_of,
    duplicate_groups,
    learn_whitening,
    similarity,
)
from training.evaluation.labelled import BACKGROUND, split_every_fifth
from training.randomness import mix

SOURCE = (
    "https://thoth.inrialpes.fr/~jegou/data.php (Copydays: 157 originals, 229 strong copies; some hundred MB)"
)


@dataclass(frozen=True, kw_only=True)
class Descriptors(Evaluation):
    """Evaluations with [CLS] beside GeM of the patches, of pictures squashed to a square."""

    size: int = 112
    """Side of the square in pixels."""

    def view(self, model: LoadedModel) -> View:
        """What the model is shown."""
        return View(self.size, model.mean, model.std, framing="squash")

    def describe(self, model: LoadedModel, found: Images) -> ImageFeatures:
        """Descriptors of pictures; a network without patches gives its one feature."""
        kind = FeatureType(1, "gem") if has_cls_tokens(model.backbone) else CLS
        return self.extract(model, self.view(model), found, kind)

    def told_view(self) -> str:
        """The protocol in words."""
        return f"squashed to {self.size} × {self.size} (bicubic); [CLS] and GeM (power 4) of the patches, L2"


@dataclass(frozen=True)
class CopyDetection(Descriptors):
    """mAP on Copydays, strong copies, among distractors."""

    data: Path
    """Copydays as published: folders `original` and `strong`."""
    size: int = field(default=224, kw_only=True)
    """Side of the square in pixels; the paper has 224 for ViT-B/16 and 320 for ViT-B/8."""
    distractors: Path | None = None
    """Pictures to hide the originals among; the paper has 10,000 of YFCC100M."""
    whitening: Path | None = None
    """Other pictures to learn the whitening from; the paper has 20,000 of YFCC100M."""
    official: bool = False
    """As the released code: moments of descriptors that are not centred, and no more than 20 places."""

    def run(self) -> None:
        """Read, compute, print."""
        for name in ("original", "strong"):
            if not (self.data / name).is_dir():
                raise ValueError(f"{self.data / name} is not there: Copydays is published at {SOURCE}")
        originals, strong = (open_images(self.data / name) for name in ("original", "strong"))
        others = open_images(self.distractors) if self.distractors else None
        white = open_images(self.whitening) if self.whitening else None
        positives = _by_prefix(strong, originals)
        formula: Formula = "released" if self.official else "corrected"
        hidden = f"{len(others):,} distractors" if others else "no distractors"
        learnt = f"{formula} whitening from {len(white):,} pictures" if white else "no whitening"
        depth = f"the first {DEPTH} places" if self.official else "all places"
        told = f"{self.told_view()}; {len(strong)} strong copies, {hidden}, {learnt}, {depth}"
        print(told)

        def measure(model: LoadedModel) -> Figures:
            database = [self.describe(model, one) for one in (originals, others) if one is not None]
            queries = self.describe(model, strong)
            if any(one.broken for one in (database[0], queries)):
                raise ValueError("pictures of Copydays cannot be read: without them its figures are others")
            whitening = learn_whitening(self.describe(model, white).features, formula) if white else None
            features = torch.cat([one.features for one in database])
            found = similarity(queries.features, features, whitening)
            scored = average_precisions(found, positives, depth=DEPTH if self.official else None)
            figures = {"map": 100 * float(scored.mean())}
            print(f"strong: mAP {figures['map']:.1f} %")
            return {"figures": figures, "broken": [m for one in database for m in one.broken]}

        described = {"told": told, "data": self.data.name, "official": self.official}
        self.collect("copy-detection", described, measure, "4", "mAP")


@dataclass(frozen=True)
class Synthetic(Descriptors):
    """mAP of copies made by a seed, each looked for among all tested pictures of a labelled folder."""

    data: Path
    """FOLDER, uncompressed TAR or LIST, a folder for each class; every fifth picture is a place to look."""
    copies: int | None = None
    """Images that are copied, once in each way. Default: 200, or all test images if there are fewer."""
    seed: int = 0
    """Of the copies."""
    least: tuple[float, ...] = ()
    """Cosines of `copy-detection duplicates` to judge: how many copies each finds, and what it mistakes."""
    output: Path | None = None
    """Folder to keep the copies in, by what they are made from: those that are there already are taken. Left
    out, they stand beside the features in --cache, or go when the figures are told."""

    def run(self) -> None:
        """Make copies, compute, print."""
        files.make_room(self.json)
        with self._folder() as folder:
            self._judge(folder)

    @contextmanager
    def _folder(self) -> Iterator[Path]:
        """Where the copies stand while they are looked at."""
        if kept := self.output or (self.cache and self.cache / "copies"):
            yield kept
        else:
            with TemporaryDirectory() as folder:
                yield Path(folder)

    def _judge(self, folder: Path) -> None:
        images = open_images(self.data)
        database = images.subset(split_every_fifth(images, (BACKGROUND,))[1])
        copies = min(200, len(database)) if self.copies is None else self.copies
        if not 1 <= copies <= len(database):
            raise ValueError(f"--copies is {copies}: choose 1 to {len(database)}")
        chosen = np.random.default_rng(self.seed).choice(len(database), copies, replace=False)
        copied = {how: self._copies(database, chosen, how, folder / how.replace(" ", "-")) for how in COPIES}
        told = (
            f"{self.told_view()}; {copies} pictures copied in each way (seed {self.seed}), looked for"
            f" among {len(database):,} of {self.data.name}; no whitening"
        )
        print(told)

        def measure(model: LoadedModel) -> Figures:
            among = self.describe(model, database)
            if among.broken:  # their rows would be missing, and all places wrong
                raise ValueError(
                    f"{len(among.broken)} of the pictures looked through cannot be read, as told above: "
                    "take them out of the folder"
                )
            features = among.features
            close = {
                how: similarity(self.describe(model, found).features, features)
                for how, found in copied.items()
            }
            right = [[int(number)] for number in chosen]
            figures = {how: 100 * float(average_precisions(one, right).mean()) for how, one in close.items()}
            figures = {"map": float(np.mean(list(figures.values()))), **figures}
            print("mAP " + ", ".join(f"{name} {value:.1f}" for name, value in figures.items()))
            own = torch.stack([one[range(len(chosen)), chosen] for one in close.values()])  # [ways, copies]
            others = similarity(features, features)
            judged = [alike(own.flatten(), others, least) for least in self.least]
            for one in judged:
                ways = (own >= one.least).double().mean(dim=1).tolist()
                each = ", ".join(f"{how} {100 * share:.0f}" for how, share in zip(close, ways, strict=True))
                print(f"{one} ({each})")
            return {"figures": figures, "alike": [asdict(one) for one in judged]}

        described = {"told": told, "data": self.data.name, "own_data": True}
        self.collect("copies", described, measure)

    def _copies(self, database: Images, chosen: NDArray[np.int64], how: str, folder: Path) -> Images:
        """The copies of one kind in a folder, in the order of `chosen`."""
        names = []
        for number in chosen.tolist():
            content = blake2b(database.read_bytes(number), digest_size=8).hexdigest()
            names.append(f"{content}-{self.seed}.png")
            if not (folder / names[-1]).exists():
                copy = copy_of(database.read(number), how, mix(self.seed, int(content, 16)))
                with files.replacing(folder / names[-1]) as beside:
                    Image.fromarray(copy).save(beside)
        return Images(tuple(names), None, (), folder)


@dataclass(frozen=True)
class Duplicates(Descriptors):
    """Groups of pictures of a folder that are nearly the same, with a contact sheet."""

    folder: Positional[Path]
    """FOLDER, uncompressed TAR or LIST."""
    least: float = 0.97
    """Cosine of descriptors from which two pictures are nearly the same. The default is measured for the
    embedded model at this --size; `copy-detection synthetic --least` measures it for others."""
    output: Path = Path("duplicates.jpg")
    """Contact sheet to write: a row for each group, at most 40 groups of 8."""

    def run(self) -> None:
        """Read, compute, draw, print."""
        files.make_room(self.output)
        if not -1 < self.least <= 1:
            raise ValueError(f"--least is {self.least}: expected a cosine, above -1 and at most 1")
        found = open_images(self.folder)
        told = f"{self.told_view()}; groups of cosine {self.least:g} or more among {found}"
        print(told)

        def measure(model: LoadedModel) -> Figures:
            extracted = self.describe(model, found)
            images = extracted.images
            groups = duplicate_groups(extracted.features, self.least)
            for group in groups:
                print("  ".join(images.names[i] for i in group))
            print(f"{len(groups)} groups, {sum(map(len, groups))} of {len(images):,} pictures")
            if groups:
                rows = [[(images.read(i), images.names[i]) for i in group[:8]] for group in groups[:40]]
                pictures.contact_sheet(self.output, rows)
                print(f"contact sheet: {self.output}")
            named = [[images.names[i] for i in group] for group in groups]
            figures = {"groups": len(groups), "pictures": sum(map(len, groups))}
            return {"figures": figures, "groups": named, "broken": [*extracted.broken]}

        self.collect("duplicates", {"told": told, "data": self.folder.name, "own_data": True}, measure)


def _by_prefix(copies: Images, originals: Images) -> list[list[int]]:
    """Of each copy the originals whose names begin alike: Copydays' first four letters."""
    starts = [Path(name).name[:4] for name in originals.names]
    found = [[i for i, start in enumerate(starts) if Path(name).name[:4] == start] for name in copies.names]
    alone = [name for name, positives in zip(copies.names, found, strict=True) if not positives]
    if alone:
        raise ValueError(f"{len(alone)} strong copies have no original, such as {alone[0]}: are all there?")
    return found
