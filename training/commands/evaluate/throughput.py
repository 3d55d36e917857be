"""`python -m training evaluate throughput`."""

from dataclasses import asdict, dataclass
from pathlib import Path

from dino_model import files
from dino_model.device import ComputePrecision, choose_device
from dino_model.weights import load_model
from training.commands.evaluate.base import Figures
from training.evaluation.paper import published
from training.evaluation.report import read_measured
from training.evaluation.throughput import measure

NETWORKS = {
    "random:resnet50": "ResNet-50",
    "random:vit_small/16": "ViT-S/16",
    "random:vit_small/8": "ViT-S/8",
    "random:vit_base/16": "ViT-B/16",
    "random:vit_base/8": "ViT-B/8",
}
"""The networks of the paper's Table 1, by the name that makes them."""


@dataclass(frozen=True)
class Throughput:
    """Images a second, parameters, FLOPs, tokens and memory of the paper's networks on this machine."""

    models: tuple[str, ...] = tuple(NETWORKS)
    """Names of models; their weights do not matter."""
    batch: int = 128
    """Pictures in a forward."""
    size: int = 224
    """Side of the pictures in pixels."""
    precisions: tuple[ComputePrecision, ...] = ("fp32", "bf16")
    """Arithmetic."""
    repeats: int = 3
    """Timed forwards, of which the median counts; one before is not timed."""
    device: str = "auto"
    """Where the models run: auto, cpu, cuda or mps."""
    json: Path | None = None
    """Write the figures here, each at once; those that stand there already are not measured again."""

    def run(self) -> None:
        """Measure, print."""
        files.make_room(self.json)
        device = choose_device(self.device)
        told = f"{self.batch} random pictures of {self.size} pixels a forward, on {device}"
        print(told)
        results = self._measured(told)
        done = {(one["model"], one["figures"]["precision"]) for one in results}
        for name in self.models:
            missing = [precision for precision in self.precisions if (name, precision) not in done]
            if not missing:
                print(f"{name}: stands in {self.json}")
                continue
            model = load_model(name)
            print(name, flush=True)
            for precision in missing:
                found = measure(
                    model.backbone,
                    size=self.size,
                    batch=self.batch,
                    precision=precision,
                    device=device,
                    repeats=self.repeats,
                )
                print(f"  {found}", flush=True)
                results.append({"model": name, "figures": asdict(found)})
                if self.json:
                    protocol = {"told": told, "own_data": True}
                    files.write_json(
                        self.json, {"name": "throughput", "protocol": protocol, "results": results}
                    )
            for one in published():
                if one.table == "1" and one.architecture == NETWORKS.get(name) and "images" in one.measure:
                    print(f"  the paper: {one.value:g} {one.measure}, {one.where}")

    def _measured(self, told: str) -> list[Figures]:
        """What an interrupted command left."""
        if self.json is None or not self.json.exists():
            return []
        found = read_measured(self.json)
        if found.name != "throughput" or found.protocol.get("told") != told:
            raise ValueError(f"{self.json} holds {found.name} of another protocol: name another file")
        return [dict(one) for one in found.results]
