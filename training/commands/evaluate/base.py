"""What the evaluations share: models, pictures, features, and the file of figures."""

import sys
from collections.abc import Callable, Iterator
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from tyro.conf import UseAppendAction

from dino_model import files, ranks
from dino_model.device import choose_device
from dino_model.feature_cache import FeatureCache
from dino_model.features import CLS, FeatureExtractor, FeatureType, ImageFeatures
from dino_model.images import Images
from dino_model.options import ComputeOptions
from dino_model.progress import following
from dino_model.views import Box, View
from dino_model.weights import LoadedModel, load_model
from training.evaluation.baselines import pixel_model
from training.evaluation.paper import of_model

Figures = dict[str, Any]


@dataclass(frozen=True, kw_only=True)
class Evaluation(ComputeOptions):
    """An evaluation of one model or of several, one after the other."""

    model: UseAppendAction[tuple[str, ...]] = ()
    """Name of a model, a checkpoint file or a run; `python -m dino_model list` tells the names. May be given
    several times; left out, it is the embedded model. `pixels` takes 16 × 16 pixels for the feature: what can
    be had without a network."""
    batch_size: int = 64
    """Pictures at once."""
    cache: Path | None = None
    """Folder that keeps features: the same pictures and models take seconds, and interrupted work goes on."""
    json: Path | None = None
    """Write protocol and figures here; `evaluate report` reads such files."""

    def each_model(self) -> Iterator[LoadedModel]:
        """The models, each loaded when its turn comes, told in a line."""
        device, precision = choose_device(self.device), self.chosen_precision()
        for name in self.model or ("embedded",):
            model = (
                pixel_model() if name == "pixels" else load_model(name, checkpoint_key=self.checkpoint_key)
            )
            print(f"{model.name}: {model.source}; {precision} on {device}", flush=True)
            yield model

    def extract(
        self,
        model: LoadedModel,
        view: View,
        images: Images,
        kind: FeatureType = CLS,
        boxes: list[Box | None] | None = None,
    ) -> ImageFeatures:
        """Features of pictures; what could not be read is told on stderr."""
        extractor = FeatureExtractor(
            model,
            view,
            kind,
            precision=self.precision,
            device=self.device,
            batch_size=self.batch_size,
            cache=FeatureCache(self.cache) if self.cache else None,
        )
        track = following(f"{model.name}, {len(images):,} pictures", len(images))
        extracted = extractor.extract(images, boxes=boxes, track=track)
        if extracted.broken:
            print(extracted, file=sys.stderr)
        return extracted

    def collect(
        self,
        name: str,
        protocol: Figures,
        measure: Callable[[LoadedModel], Figures],
        *published: str,
    ) -> list[Figures]:
        """Measure every model; write what was found after each, so that an interruption loses one.

        Args:
            name: of the evaluation.
            protocol: what decides its figures, beside the model.
            measure: a model -> its figures and what else belongs to them.
            published: the table of the paper and its measures that tell of the same.
        """
        files.make_room(self.json)
        results = []
        for model in self.each_model():
            found = measure(model)
            paper = of_model(model.name, *published) if published else []
            for one in paper:
                print(f"the paper: {one}")
            told = {"model": model.name, "source": model.source, **found}
            results.append(told | {"paper": [asdict(one) | {"value": one.value} for one in paper]})
            if self.json and ranks.rank() == 0:
                settings = {"precision": self.chosen_precision(), "device": str(choose_device(self.device))}
                files.write_json(
                    self.json, {"name": name, "protocol": protocol | settings, "results": results}
                )
        return results


@dataclass(frozen=True, kw_only=True)
class Cropped(Evaluation):
    """An evaluation that shows the middle of each picture."""

    size: int = 112
    """Side of the centre crop in pixels."""
    resize_to: int | None = None
    """Short side before the crop, --size if left out. ImageNet's protocol is --resize-to 256 --size 224."""

    def view(self, model: LoadedModel) -> View:
        """What the model is shown."""
        return View(self.size, model.mean, model.std, self.resize_to)

    def told_view(self) -> str:
        """The same for every model, in words."""
        return str(View(self.size, (0.0,) * 3, (1.0,) * 3, self.resize_to))
