"""`python -m training evaluate knn`."""

from dataclasses import asdict, dataclass
from pathlib import Path

from dino_model import files
from dino_model.features import CLS
from dino_model.weights import LoadedModel
from training.commands.evaluate import pictures
from training.commands.evaluate.base import Cropped, Figures
from training.evaluation.accuracy import confusions
from training.evaluation.knn import KnnProtocol, check_ks, knn_accuracies
from training.evaluation.labelled import BACKGROUND, Split, open_split


@dataclass(frozen=True)
class Knn(Cropped):
    """Accuracy of a weighted k-nearest-neighbour vote on a model's frozen features.

    Tested are the pictures of --test, or those that --split names, or those of a folder `val` beside `train`
    in --data; without any of these every fifth picture of each class, sorted by name. The others vote.
    """

    data: Path
    """Pictures that vote, a folder for each class: FOLDER, uncompressed TAR or LIST; or a folder with `train`
    and `val`."""
    test: Path | None = None
    """Pictures to test on."""
    split: Path | None = None
    """Text file with the names of the pictures of --data to test on, one a line, as --test-list writes."""
    k: tuple[int, ...] = (20,)
    """Numbers of neighbours; a result for each."""
    temperature: float = 0.07
    """Of the votes: the smaller, the more the nearest count."""
    leave_out: tuple[str, ...] = (BACKGROUND,)
    """Classes that are neither voted for nor tested."""
    confusions: Path | None = None
    """Draw what was taken for what to this file (.png), for the first k and the last model."""
    test_list: Path | None = None
    """Write the names of the tested pictures here: a list for `pretrain --exclude`."""

    def run(self) -> None:
        """Read, compute, print."""
        files.make_room(self.test_list, self.confusions)
        protocol = KnnProtocol(self.k, self.temperature)
        split = open_split(self.data, test=self.test, split=self.split, leave_out=self.leave_out)
        check_ks(self.k, len(split.train))  # before the long part
        told = f"{self.told_view()}; {CLS}, {protocol}"
        print(told, f"{self.data.name}: {split}", sep="\n")
        if self.test_list:
            files.write_text(self.test_list, "".join(f"{name}\n" for name in split.test.names))

        def measure(model: LoadedModel) -> Figures:
            return self._measure(model, split, protocol)

        described = {"told": told, "data": self.data.name, "split": str(split), "classes": len(split.classes)}
        self.collect("knn", described | asdict(protocol), measure, "2", "k-NN top-1")

    def _measure(self, model: LoadedModel, split: Split, protocol: KnnProtocol) -> Figures:
        view = self.view(model)
        train, test = (self.extract(model, view, images) for images in (split.train, split.test))
        results = knn_accuracies(
            train.features,
            split.labels(train.images),
            test.features,
            split.labels(test.images),
            ks=protocol.k,
            temperature=protocol.temperature,
        )
        print(*results, sep="\n")
        if self.confusions:
            names = split.classes
            counts = confusions(split.labels(test.images), results[0].predicted, len(names)).numpy()
            title = f"{model.name}, k = {results[0].k}, top-1 {results[0].top1:.1f} %"
            pictures.confusion_chart(self.confusions, counts, names, title=title)
            print(f"confusions: {self.confusions}")
        return {
            "figures": results[0].figures(),
            "each": [result.figures() for result in results],
            "broken": [*train.broken, *test.broken],
        }
