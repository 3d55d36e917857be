"""`python -m training evaluate retrieval`, `… retrieval index` and `… retrieval query`."""

import json
from dataclasses import asdict, dataclass, field
from pathlib import Path

import torch
from tyro.conf import Positional

from dino_model import files, images
from dino_model.checkpoints import CheckpointKey
from dino_model.device import Precision
from dino_model.feature_cache import model_fingerprint, read_features, write_features
from dino_model.features import FeatureExtractor
from dino_model.images import Images, open_images
from dino_model.options import ModelOptions
from dino_model.progress import following
from dino_model.views import Box, View
from dino_model.weights import LoadedModel, load_model
from training.commands.evaluate import pictures
from training.commands.evaluate.base import Evaluation, Figures
from training.evaluation.landmarks import Landmarks, Name, open_landmarks
from training.evaluation.retrieval import medium_and_hard
from training.evaluation.search import nearest, unit

SCALES = (1.0, 2**-0.5, 0.5)


@dataclass(frozen=True)
class Retrieval(Evaluation):
    """mAP on revisited Oxford or Paris, Medium and Hard, with frozen features.

    The released figures are Oxford at 224 pixels with one scale and Paris at 512 with --multiscale, both with
    --official. Features for landmarks are pretrained on the clean 1.2 M pictures of GLDv2:
    `python -m training pretrain --data GLDv2 --recipe paper`.
    """

    data: Path
    """Folder that holds roxford5k or rparis6k, as published: jpg/ and gnd_NAME.pkl."""
    dataset: Name = "roxford5k"
    """Which."""
    size: int = 224
    """Longest side in pixels; smaller pictures stay as they are."""
    multiscale: bool = False
    """Features are the mean over the scales 1, 0.707 and 0.5, normalised picture by picture."""
    official: bool = False
    """As the released code: queries are not cropped to their box, and what fills no patch is cut off."""

    def run(self) -> None:
        """Read, compute, print."""
        landmarks = open_landmarks(self.data, self.dataset)
        crop = "queries whole, as released" if self.official else "queries cropped to their box"
        told = (
            f"{self.dataset}: {self._view((0.0,) * 3, (1.0,) * 3, 0)}; {crop}; [CLS] after the final norm, L2"
        )
        print(told)

        def measure(model: LoadedModel) -> Figures:
            return self._measure(model, landmarks)

        described = {"told": told, "data": self.dataset, "official": self.official}
        paper = "ROxford" if self.dataset == "roxford5k" else "RParis"
        name = f"retrieval {self.dataset}"
        self.collect(name, described, measure, "3", f"{paper} Medium", f"{paper} Hard")

    def _view(self, mean: tuple[float, ...], std: tuple[float, ...], cut: int) -> View:
        scales = SCALES if self.multiscale else (1.0,)
        return View(self.size, mean, std, framing="long-side", scales=scales, cut=cut)

    def _measure(self, model: LoadedModel, landmarks: Landmarks) -> Figures:
        patch = getattr(model.backbone, "patch_embed", None)
        cut = patch.patch_size[0] if self.official and patch is not None else 0
        view = self._view(model.mean, model.std, cut)
        boxes: list[Box | None] | None = None if self.official else [*landmarks.boxes]
        database = self.extract(model, view, landmarks.database)
        queries = self.extract(model, view, landmarks.queries, boxes=boxes)
        if database.broken or queries.broken:
            raise ValueError("pictures of the benchmark cannot be read: without them its figures are others")
        similarity = unit(queries.features) @ unit(database.features).T
        medium, hard = medium_and_hard(similarity, landmarks.relevance)
        print(f"Medium: {medium}", f"Hard:   {hard}", sep="\n")
        return {
            "figures": {"medium_map": medium.map, "hard_map": hard.map},
            "medium": asdict(medium),
            "hard": asdict(hard),
        }


@dataclass(frozen=True)
class Index(ModelOptions):
    """Keep the features of all pictures of a folder, so that `retrieval query` finds like ones at once."""

    folder: Positional[Path]
    """FOLDER, uncompressed TAR or LIST."""
    output: Path = Path("index.safetensors")
    """File to write."""
    size: int = field(default=224, kw_only=True)
    """Short side and centre crop in pixels."""
    batch_size: int = 64
    """Pictures at once."""

    def run(self) -> None:
        """Read, compute, write."""
        files.make_room(self.output)
        found, model = open_images(self.folder), self.load()
        print(f"{model.name}: {model.source}; {found}", flush=True)
        extracted = _extractor(model, self.size, self.precision, self.device, self.batch_size).extract(
            found, track=following(f"{len(found):,} pictures", len(found))
        )
        if extracted.broken:
            print(extracted)
        key = {
            "format": "retrieval index 1",
            "root": str(self.folder.resolve()),
            "names": json.dumps(list(extracted.images.names)),
            "model": self.model,
            "checkpoint_key": self.checkpoint_key or "",
            "weights": model_fingerprint(model.backbone),
            "size": str(self.size),
        }
        write_features(self.output, key, unit(extracted.features))
        print(f"{len(extracted.images):,} pictures: {self.output}")


@dataclass(frozen=True)
class Query:
    """The pictures of an index that a photograph is most like."""

    photos: Positional[tuple[Path, ...]]
    """Photographs to ask for."""
    index: Path = Path("index.safetensors")
    """What `retrieval index` wrote."""
    count: int = 9
    """Pictures to find for each."""
    output: Path = Path("neighbours.jpg")
    """Contact sheet to write: a row for each photograph, itself first."""
    precision: Precision = "auto"
    """Arithmetic of the model."""
    device: str = "auto"
    """Where the model runs: auto, cpu, cuda or mps."""
    json: Path | None = None
    """Write names and cosines here."""

    def run(self) -> None:
        """Read, compute, draw, print."""
        if not self.photos or self.count < 1:
            raise ValueError("name at least one photograph, and a --count of at least 1")
        files.make_room(self.output, self.json)
        if not self.index.is_file():
            made = f"python -m training evaluate retrieval index FOLDER --output {self.index}"
            raise ValueError(f"{self.index} is not there: `{made}` makes it of a folder of pictures")
        features, told = read_features(self.index, "retrieval index 1")
        key: CheckpointKey = told["checkpoint_key"] or None
        model = load_model(told["model"], checkpoint_key=key)
        if model_fingerprint(model.backbone) != told["weights"]:
            raise ValueError(f"{self.index} was made with other weights of {told['model']}: make it again")
        database = _named(open_images(told["root"]), json.loads(told["names"]), self.index)
        extractor = _extractor(model, int(told["size"]), self.precision, self.device, 1)
        asked = [images.read(path) for path in self.photos]
        view = extractor.view
        seen = torch.cat([extractor.extract_crop(view.crop(picture)) for picture in asked])
        cosines, numbers = nearest(seen, features, self.count)
        rows, found = [], []
        for path, picture, near, which in zip(self.photos, asked, cosines, numbers, strict=True):
            pairs = list(zip(near.tolist(), which.tolist(), strict=True))
            print(path, *(f"  {cosine:.3f}  {database.names[i]}" for cosine, i in pairs), sep="\n")
            tiles = [(database.read(i), f"{cosine:.2f} {database.names[i]}") for cosine, i in pairs]
            rows.append([(picture, path.name), *tiles])
            found.append({"photo": str(path), "neighbours": [[database.names[i], c] for c, i in pairs]})
        pictures.contact_sheet(self.output, rows)
        print(f"contact sheet: {self.output}")
        if self.json:
            told_ = {"model": told["model"], "size": int(told["size"])}
            files.write_json(self.json, {"name": "retrieval query", "protocol": told_, "results": found})


def _extractor(
    model: LoadedModel, size: int, precision: Precision, device: str, batch_size: int
) -> FeatureExtractor:
    view = View(size, model.mean, model.std)
    return FeatureExtractor(model, view, precision=precision, device=device, batch_size=batch_size)


def _named(found: Images, names: list[str], index: Path) -> Images:
    """These pictures of a collection, in the order of an index."""
    place = {name: number for number, name in enumerate(found.names)}
    missing = [name for name in names if name not in place]
    if missing:
        gone = f"{len(missing)} pictures of {index} are gone from {found.root}"
        raise ValueError(f"{gone}, such as {missing[0]}: make it again")
    return found.subset(place[name] for name in names)
