"""Pack a pretraining run into one file, and make a run that can be resumed from it.

python -m tools.pack_run pack RUN FILE [--form small|fp16|full]
python -m tools.pack_run unpack FILE RUN
python -m training pretrain --output RUN --resume --data IMAGES

`full` holds every bit: the resumed run equals one that never stopped. `fp16` holds the weights of student and
teacher in half precision, `small` the student in half precision and the teacher's difference from it in 8
bits: 63, 19 and 14 MB for the recipe `embedded`. `fp16` and `small` continue at the same step of the same
schedules, with moments of the optimizer that start at zero. The log is thinned to means over 50 steps. Paths
of the machine are left out.
"""

import json
import sys
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Any, Literal

import torch
import tyro
from torch import Tensor

from dino_model import files
from dino_model.errors import EXPECTED, sentence
from tools.thin_log import read_log, thinned
from training.checkpoint import Snapshot, read_state, write_checkpoint
from training.optim import create_optimizer
from training.recipe import Plan, recipe_of
from training.run import Run, RunError

Form = Literal["small", "fp16", "full"]
PATHS = ("command", "init")
LARGEST = 448.0  # of torch.float8_e4m3fn


@dataclass(frozen=True)
class Pack:
    """Write the newest checkpoint, the configuration and the thinned log of a run to one file."""

    run_folder: tyro.conf.Positional[Path]
    """Folder of the run."""
    file: tyro.conf.Positional[Path]
    """File to write."""
    form: Form = "small"
    """What is kept: full, fp16 or small, see above."""

    def run(self) -> None:
        """Read, pack, write."""
        files.make_room(self.file)
        run = Run(self.run_folder)
        state, config = read_state(run.checkpoint), run.config()
        config = {name: value for name, value in config.items() if name not in PATHS}
        config["options"] = config.get("options", {}) | {"data": None, "exclude": None}
        records = [{"phase": 1} | record for record in read_log(run.log) if record["step"] < state["step"]]
        log = [{k: v for k, v in record.items() if k != "phase"} for record in thinned(records, 50)]
        if self.form != "full":
            state = {name: state[name] for name in ("format", "step", "method")}
            state["method"] = (halved if self.form == "fp16" else shortened)(state["method"])
        with files.replacing(self.file) as beside:
            torch.save({"form": self.form, "config": config, "log": log, "state": state}, beside)
        print(f"{self.file}: step {state['step']:,}, {self.form}, {self.file.stat().st_size / 1e6:.1f} MB")


@dataclass(frozen=True)
class Unpack:
    """Make a run's folder from a packed file, for `pretrain --output RUN --resume`."""

    file: tyro.conf.Positional[Path]
    """What `pack` wrote."""
    run_folder: tyro.conf.Positional[Path]
    """Folder to write, in which there is no run yet."""

    def run(self) -> None:
        """Read, unpack, write."""
        packed: dict[str, Any] = torch.load(self.file, map_location="cpu", weights_only=True)
        run, state = Run(self.run_folder), packed["state"]
        if packed["form"] != "full":
            state = resumable(packed["config"], state)
        run.create(packed["config"])
        files.write_text(run.log, "".join(json.dumps(record) + "\n" for record in packed["log"]))
        write_checkpoint(run, state)
        print(f"{run.folder}: step {state['step']:,}; pass --output {run.folder} --resume to pretrain")


def halved(tensors: Mapping[str, Tensor]) -> dict[str, Tensor]:
    """The networks in half precision; what a method remembers next to them (center, queue) as it is."""
    return {name: tensor.half() if is_weight(name, tensor) else tensor for name, tensor in tensors.items()}


def shortened(tensors: Mapping[str, Tensor]) -> dict[str, Tensor]:
    """`halved`, with every teacher tensor as its difference from the student: 8 bits and a scale."""
    short, half = {}, halved(tensors)
    for name, tensor in half.items():
        student = half.get(name.replace("teacher.", "student.", 1))
        if name.startswith("teacher.") and student is not None and is_weight(name, tensor):
            difference = tensors[name] - student.float()
            scale = difference.abs().max().clamp(min=1e-12) / LARGEST
            short[f"scale.{name}"] = scale
            short[name] = (difference / scale).to(torch.float8_e4m3fn)
        else:
            short[name] = tensor
    return short


def restored(tensors: Mapping[str, Tensor]) -> dict[str, Tensor]:
    """The inverse of `halved` and `shortened`, in fp32."""
    full: dict[str, Tensor] = {}
    for name, tensor in tensors.items():
        if name.startswith("scale."):
            continue
        full[name] = tensor.float() if tensor.is_floating_point() else tensor
        if f"scale.{name}" in tensors:
            student = full[name.replace("teacher.", "student.", 1)]
            full[name] = student + full[name] * tensors[f"scale.{name}"]
    return full


def is_weight(name: str, tensor: Tensor) -> bool:
    """Test if a tensor of the state is a weight of student or teacher."""
    return name.startswith(("student.", "teacher.")) and tensor.is_floating_point()


def resumable(config: Mapping[str, Any], state: Mapping[str, Any]) -> dict[str, Any]:
    """A whole checkpoint from packed weights: moments of the optimizer are zero."""
    recipe = recipe_of(config)
    plan = Plan.of(recipe, config["pictures"])
    method = recipe.method.build(recipe.backbone, plan.method, classes=0)
    method.load_state_dict(restored(state["method"]))
    optimizer = create_optimizer(recipe.optimizer.name, method.parameter_groups(), torch.device("cpu"))
    copied, _ = Snapshot().take(state["step"], method, optimizer)
    return copied


Command = Annotated[Pack, tyro.conf.subcommand("pack")] | Annotated[Unpack, tyro.conf.subcommand("unpack")]


def main(arguments: Sequence[str] | None = None) -> None:
    """Parse and run; an expected error becomes one sentence and exit code 1."""
    try:
        tyro.cli(Command, args=arguments, prog="python -m tools.pack_run").run()
    except (*EXPECTED, RunError) as error:
        sys.exit(f"error: {sentence(error)}")


if __name__ == "__main__":
    main()
