"""`python -m training evaluate`: figures of frozen features."""

import json
from dataclasses import asdict, dataclass, field
from pathlib import Path

from dino_model import files
from dino_model.device import choose_device
from dino_model.features import FeatureCache
from dino_model.images import Images, open_images
from dino_model.options import ModelOptions
from training.evaluation.knn import (
    BACKGROUND,
    KnnProtocol,
    evaluate_knn,
    kept,
    pixel_model,
    split_every_fifth,
)


@dataclass(frozen=True)
class Knn(ModelOptions):
    """Accuracy of a weighted k-nearest-neighbour vote on a model's frozen features.

    Without --test, every fifth picture of each class (sorted by name) is tested and the others vote.
    """

    data: Path
    """Pictures that vote, a folder for each class: FOLDER, uncompressed TAR or LIST."""
    model: str = field(default="embedded", kw_only=True)
    """Name of a model, a checkpoint file or a run; `python -m dino_model list` tells the names.
    `pixels` takes 16 × 16 pixels for the feature: what can be had without a network."""
    test: Path | None = None
    """Pictures to test on, instead of every fifth of --data."""
    size: int = field(default=112, kw_only=True)
    """Side of the centre crop in pixels."""
    resize_to: int | None = None
    """Short side before the crop, --size if left out. ImageNet's protocol is --resize-to 256 --size 224."""
    k: tuple[int, ...] = (20,)
    """Numbers of neighbours; a result for each."""
    temperature: float = 0.07
    """Of the votes: the smaller, the more the nearest count."""
    leave_out: tuple[str, ...] = (BACKGROUND,)
    """Classes that are neither voted for nor tested."""
    batch_size: int = 64
    """Pictures at once."""
    cache: Path | None = None
    """Folder that keeps features, so that another k takes seconds."""
    test_list: Path | None = None
    """Write the names of the tested pictures here: a list for `pretrain --exclude`."""
    json: Path | None = None
    """Write protocol and figures here."""

    def run(self) -> None:
        """Read, compute, print."""
        files.make_room(self.json, self.test_list)
        protocol = KnnProtocol(self.size, self.resize_to, self.k, self.temperature)
        train, test, split = self._pictures()
        model = pixel_model() if self.model == "pixels" else self.load()
        device = choose_device(self.device)
        precision = self.chosen_precision()
        print(f"{model.name}: {model.source}; {precision} on {device}", protocol, split, sep="\n")
        results = evaluate_knn(
            model,
            train,
            test,
            protocol,
            batch_size=self.batch_size,
            precision=precision,
            device=device,
            cache=FeatureCache(self.cache) if self.cache else None,
        )
        print(*results, sep="\n")
        if self.test_list:
            files.write_text(self.test_list, "".join(f"{name}\n" for name in test.names))
        if self.json:
            figures = {
                "name": "knn",
                "model": model.name,
                "source": model.source,
                **asdict(results[0]),
                "results": [asdict(result) for result in results],
                "protocol": asdict(protocol) | {"pictures": split, "precision": precision},
            }
            files.write_text(self.json, json.dumps(figures, indent=2) + "\n")

    def _pictures(self) -> tuple[Images, Images, str]:
        """Those that vote, those that are tested, and how they were told apart."""
        data = open_images(self.data)
        if self.test is None:
            voting, tested = split_every_fifth(data, self.leave_out)
            train, test = data.subset(voting), data.subset(tested)
            how = "every fifth of each class, by name"
        else:
            train = data.subset(kept(data, self.leave_out))
            test = open_images(self.test)
            test = test.subset(kept(test, {*self.leave_out}.intersection(test.classes)))
            how = f"those in {self.test.name}"
        left_out = sorted({*self.leave_out}.intersection(data.classes))
        without = f", without {', '.join(left_out)}" if left_out else ""
        return train, test, f"{self.data.name}{without}: {len(test):,} tested ({how}), {len(train):,} vote"
