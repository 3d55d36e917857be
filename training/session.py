"""What a recipe becomes on given pictures. A library: it prints nothing and takes no signals.

session = Session(recipe, open_images("pictures"))
session.train(Run(Path("runs/first")))
"""

import json
from collections.abc import Callable, Iterator, Sequence
from dataclasses import asdict, replace
from pathlib import Path
from typing import Any

import torch
from torch import nn

from dino_model.backbones import choose_training_attention
from dino_model.device import ComputePrecision
from dino_model.errors import SettingError
from dino_model.images import Images
from training import initialise
from training.checkpoint import CONFIG_FORMAT, Run, RunError
from training.crops import MultiCrop
from training.data import Loaded, batches
from training.distributed import rank, synchronise_batch_norm, texts, world
from training.loop import Arithmetic, train
from training.optim import create_optimizer
from training.plan import Plan
from training.recipes import Recipe


class Session:
    """A training, ready to begin or to go on.

    Args:
        recipe: what is learned and how.
        images: from which pictures.
        seed: of weights, order, crops and stochastic depth.
        device: where it is computed.
        precision: of the networks; the loss is always fp32.
        workers: processes that cut crops; 0: none but this one.
        accumulate: micro-batches that a batch is split into, for little memory.

    Raises:
        SettingError: settings that cannot be trained on these pictures.
    """

    def __init__(
        self,
        recipe: Recipe,
        images: Images,
        *,
        seed: int = 0,
        device: torch.device | str = "cpu",
        precision: ComputePrecision = "fp32",
        workers: int = 0,
        accumulate: int = 1,
    ) -> None:
        self.recipe, self.images, self.seed, self.workers = recipe, images, seed, workers
        self.device = torch.device(device)
        check_ranks("pictures", f"{len(images):,} of fingerprint {images.inventory()}")
        check_ranks("settings", str((recipe, seed, precision, accumulate)))
        self.plan = Plan.of(recipe, len(images))
        self.arithmetic = Arithmetic(
            self.device, precision, recipe.mean, recipe.std, accumulate, MultiCrop(recipe.crops)
        )
        classes = 0 if images.labels is None else len(images.classes)
        check_batch(recipe, classes, accumulate)
        with torch.random.fork_rng(devices=[]):
            torch.default_generator.manual_seed(seed)
            self.method = recipe.method.build(recipe.backbone, self.plan.method, classes).to(self.device)
        choose_training_attention(self.method, self.device, precision)
        check_batch_norm(self.method, recipe.batch_size, accumulate)
        if world() > 1 and self.device.type == "cuda":
            nn.SyncBatchNorm.convert_sync_batchnorm(self.method)
        elif world() > 1:
            synchronise_batch_norm(self.method)
        self.optimizer = create_optimizer(recipe.optimizer.name, self.method.parameter_groups(), self.device)

    def start_from(self, run: Path | None = None, backbone: str | None = None) -> int | None:
        """Take weights of another run, or any model's backbone; see `training.initialise`.

        Returns the step of the run's weights.
        """
        if backbone is not None:
            initialise.from_backbone(self.method, self.recipe, backbone)
        return None if run is None else initialise.from_run(self.method, self.recipe, run)

    def config(self) -> dict[str, Any]:
        """What decides the result, and what others need to load the networks, for config.json."""
        prefixes = {id(module): name for name, module in self.method.named_modules()}
        backbone = replace(self.recipe.backbone, drop_path=0.0)  # as it is evaluated
        config = {
            "format": CONFIG_FORMAT,
            "method": self.recipe.method.name,
            "networks": {name: prefixes[id(module)] for name, module in self.method.backbones().items()},
            "backbone": asdict(backbone),
            "mean": self.recipe.mean,
            "std": self.recipe.std,
            "recipe": asdict(self.recipe),
            "pictures": len(self.images),
            "data": self.images.inventory(),
            "seed": self.seed,
            "precision": self.arithmetic.precision,
        }
        return dict(json.loads(json.dumps(config)))  # tuples are lists, as in the file

    def resume(self, run: Run) -> int:
        """Take the state of `run`, which was trained on the same pictures; returns the steps done.

        Raises:
            RunError: other pictures or another seed, or a state that does not fit.
        """
        before, now = run.config(), self.config()
        for name, words in FIXED.items():
            if before.get(name) not in (None, now[name]):
                raise RunError(f"cannot resume {run.folder}: {words} was {before[name]}, now {now[name]}")
        step = run.load(self.method, self.optimizer)
        if rank() == 0:
            run.tidy(step)
        return step

    def batches(self, first_step: int = 0) -> Iterator[Loaded]:
        """The batches of the training from a step on."""
        return batches(
            self.images,
            self.recipe.crops,
            batch_size=self.recipe.batch_size,
            seed=self.seed,
            first_step=first_step,
            steps=self.plan.steps,
            workers=self.workers,
            pin_memory=self.device.type == "cuda",
            finish=self.device.type == "cpu",
        )

    def train(
        self,
        run: Run,
        first_step: int = 0,
        *,
        save_every: int = 200,
        milestone_every: int = 5000,
        keep: int = 0,
        observe: Callable[[int, dict[str, float], Sequence[str]], dict[str, float]] = lambda *_: {},
        interrupted: Callable[[], bool] = lambda: False,
    ) -> int:
        """Train to the end, or until `interrupted`; arguments and errors as `training.loop.train`.

        At step 0 the run is created, after `resume` it goes on. Returns the number of steps done.
        """
        if first_step == 0 and rank() == 0 and not (run.folder / "config.json").exists():
            run.create(self.config())
        return train(
            self.method,
            self.optimizer,
            self.batches(first_step),
            self.plan,
            self.arithmetic,
            run=run,
            first_step=first_step,
            save_every=save_every,
            milestone_every=milestone_every,
            keep=keep,
            observe=observe,
            interrupted=interrupted,
        )


FIXED = {
    "method": "the method",
    "seed": "the seed",
    "pictures": "the number of pictures",
    "data": "the fingerprint of names and sizes of the pictures",
}
"""What a run cannot go on without: with another, its steps would be others."""


def check_ranks(what: str, own: str) -> None:
    """Raise SettingError where ranks have other pictures or settings than the first one."""
    first, *others = texts(own)
    for number, other in enumerate(others, 1):
        if other != first:
            raise SettingError(
                f"the processes have different {what}: process 0 {first}, process {number} {other}; "
                "pass them all the same"
            )


def check_batch_norm(method: nn.Module, pictures: int, accumulate: int) -> None:
    """Raise SettingError for a split batch, or a single picture, where there is batch normalisation."""
    if not any(isinstance(module, nn.modules.batchnorm._BatchNorm) for module in method.modules()):
        return
    if accumulate > 1:
        raise SettingError(
            "batch normalisation needs the whole batch at once, and a ResNet or --batch-norm has it: "
            f"leave out --accumulate {accumulate}"
        )
    if pictures < 2:
        raise SettingError("batch normalisation needs 2 pictures or more at once: raise --batch-size")


def check_batch(recipe: Recipe, classes: int, accumulate: int) -> None:
    """Raise SettingError for a batch that cannot be split so, or that the method cannot use."""
    if not 1 <= accumulate <= recipe.batch_size or recipe.batch_size % accumulate:
        raise SettingError(
            f"--accumulate is {accumulate}, expected a divisor of the batch of {recipe.batch_size}"
        )
    if recipe.batch_size % world():
        raise SettingError(f"--batch-size is {recipe.batch_size}, no multiple of the {world()} processes")
    crops = recipe.crops
    recipe.method.check(
        recipe.batch_size,
        accumulate=accumulate,
        views=crops.global_crops,
        local_crops=crops.local_crops,
        classes=classes,
    )
