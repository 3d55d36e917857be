"""A recipe on given images. A library: it prints nothing and handles no signals.

session = Session(recipe, open_images("images"))
session.train(Run(Path("runs/first")))
"""

import json
import time
from collections.abc import Iterator, Mapping
from contextlib import suppress
from dataclasses import asdict, replace
from typing import Any

import torch
from torch.amp import GradScaler

from dino_model.data.collection import Images
from dino_model.runtime.device import ComputePrecision, autocast
from dino_model.runtime.errors import SettingError, pluralize
from dino_model.runtime.files import printable
from dino_model.runtime.ranks import LISTING_LIMIT, on_first
from training.augmentation.batches import LoadedBatch, load_batches
from training.augmentation.crops import normalize
from training.distributed import barrier, data_parallel, rank, world
from training.methods.method import Batch
from training.methods.network import Network
from training.optim import create_optimizer, decay_groups
from training.prepare import check_batch, check_ranks, create_graph, num_classes, prepare_model
from training.recipes.recipe import Plan, Recipe, recipe_of
from training.run.checkpoint import CheckpointWriter, load_checkpoint
from training.run.folder import Run, RunError
from training.run.logging import MetricLogger, json_lines
from training.train import Callbacks, train_step

FIXED = (
    *("method.name", "method.head.", "method.predictor", "method.queue", "method.patch_loss"),
    *("seed", "num_images", "data", "batch_size", "mean", "std", "optimizer.name", "backbone."),
)
"""Settings, by the beginning of their names, that a resumed run cannot change, except stochastic depth."""
DATA = ("data", "num_images")
"""Settings that describe the images: a resumed run changes them only where that is accepted."""

MAX_COMPARED_SIZES = 1000
"""Images whose sizes ranks compare at the start."""


class OutOfMemory(RuntimeError):
    """The device's memory does not suffice. The message names the option that needs less."""


class Session:
    """A training that can start or resume.

    Args:
        recipe, images: Settings and images of the training.
        seed: Of weights, order, crops and stochastic depth.
        device, precision: Of the networks; the loss is always fp32.
        workers: Processes that load images; 0: none but this one.
        accumulate: Micro-batches of a step.
        checkpoint_activations, compile: As in `training.prepare`.
        cuda_graph: Launch losses and gradients as one operation, see `training.step_graph`.

    Raises:
        SettingError: Settings that cannot be trained on these images.
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
        checkpoint_activations: bool = False,
        compile: bool = False,
        cuda_graph: bool = False,
    ) -> None:
        self.device = torch.device(device)
        recipe = replace(recipe, crops=recipe.crops.for_device(self.device.type, rgb=not recipe.low))
        images = replace(images, channel_range=recipe.channel_range)
        self.recipe, self.images, self.seed, self.workers = recipe, images, seed, workers
        self.precision, self.accumulate = precision, accumulate
        if world() > 1:
            sample = images.subset(range(0, len(images), -(-len(images) // MAX_COMPARED_SIZES)))
            names = f"{len(images):,} whose names have the hash {images.name_hash()}"
            check_ranks("images", f"{names}, and their sizes {sample.inventory()}")
        check_ranks("settings", str((recipe, seed, precision, accumulate)))
        self._sizes: list[int] = []  # of the first rank only: millions of files may take minutes
        self.inventory = on_first(self._hash_images, LISTING_LIMIT)
        self.plan = Plan.of(recipe, len(images))
        check_batch(recipe, accumulate, num_classes(images))
        self.method = prepare_model(
            recipe,
            self.plan,
            images,
            seed=seed,
            device=self.device,
            precision=precision,
            compile=compile,
            checkpoint_activations=checkpoint_activations,
        )
        self.graph = create_graph(self.method, self.device, accumulate, precision) if cuda_graph else None
        self.optimizer = create_optimizer(recipe.optimizer.name, decay_groups(self.method), self.device)
        self.scaler = GradScaler(self.device.type, enabled=precision == "fp16")
        self.side_stream: torch.cuda.Stream | None = None

    @property
    def one_pass(self) -> bool:
        """Test if crops of all sizes share a forward pass."""
        return any(module.one_pass for module in self.method.modules() if isinstance(module, Network))

    def _hash_images(self) -> str:
        self._sizes = self.images.sizes()
        return self.images.inventory(self._sizes)

    def named_sizes(self) -> Iterator[tuple[str, int]]:
        """Iterate over name and size in bytes of the images; empty on other ranks than the first."""
        return zip(map(printable, self.images.names), self._sizes, strict=False)

    def config(self) -> dict[str, Any]:
        """Entries of config.json that decide the result, or that are needed to load the networks."""
        config = {
            "method": self.recipe.method.name,
            "networks": {name: f"{name}.backbone" for name in self.method.networks},
            "backbone": asdict(replace(self.recipe.backbone, drop_path=0.0)),  # as it is evaluated
            "mean": self.recipe.mean,
            "std": self.recipe.std,
            "channel_range": asdict(found) if (found := self.recipe.channel_range) else None,
            "recipe": asdict(self.recipe),
            "num_images": len(self.images),
            "data": self.inventory,
            "seed": self.seed,
            "precision": self.precision,
        }
        return dict(json.loads(json.dumps(config)))  # tuples are lists, as in the file

    def changes(self, run: Run, *, accept_data_change: bool = False) -> dict[str, tuple[Any, Any]]:
        """Settings of `run` and of this session where they differ, by their names with dots.

        Raises:
            RunError: A change that the state of the run does not fit.
        """
        before, now = _settings(run.config()), _settings(self.config())
        changed = {
            name: (before.get(name), now[name]) for name in sorted(now) if before.get(name) != now[name]
        }
        fixed = [name for name in changed if name.startswith(FIXED) and name != "backbone.drop_path"]
        if other := [name for name in fixed if name not in DATA]:
            words = in_words({name: changed[name] for name in other})
            raise RunError(f"cannot resume {run.folder} with other settings: {words}")
        if fixed and not accept_data_change:
            found = run.describe_changed_images(self.named_sizes())
            raise RunError(
                f"cannot resume {run.folder} with other images: {found}; restore them, or pass"
                " --accept-data-change to train on these"
            )
        return changed

    def resume(self, run: Run, *, accept_data_change: bool = False) -> int:
        """Load the state of `run` and return the steps done; raises RunError as `changes`."""
        self.changes(run, accept_data_change=accept_data_change)
        step, steps = load_checkpoint(run, self.method, self.optimizer, self.scaler), self.plan.steps
        if step > steps:
            epochs = -(-step // self.plan.steps_per_epoch)
            raise RunError(
                f"{run.folder} has done {pluralize(step, 'step')}, but --epochs {self.recipe.epochs} are "
                f"{pluralize(steps, 'step')}: pass --epochs {epochs} or more"
            )
        if rank() == 0:
            run.tidy(step)
        return step

    def batches(self, first_step: int = 0) -> Iterator[LoadedBatch]:
        """Batches from a step on, one stage of the curriculum after the other."""
        for end, crops in self.plan.stages:
            if first_step < end:
                yield from load_batches(
                    self.images,
                    crops,
                    batch_size=self.recipe.batch_size,
                    seed=self.seed,
                    first_step=first_step,
                    steps=end,
                    workers=self.workers,
                    pin_memory=self.device.type == "cuda",
                    finish=self.device.type == "cpu",
                )
                first_step = end

    def train(self, run: Run, first_step: int = 0, callbacks: Callbacks | None = None) -> int:
        """Train to the end, or until interrupted; the first rank writes checkpoints and a log into `run`.

        At step 0 the run is created, after `resume` it continues. Returns the number of steps done.

        Raises:
            Diverged: The loss, or a weight of a checkpoint, is not finite.
            OSError: A checkpoint or the log could not be written; the former checkpoint is intact.
            OutOfMemory: The device's memory does not suffice for a step.
        """
        if first_step == 0 and rank() == 0 and not run.config_file.exists():
            run.create(self.config(), self.named_sizes())
        try:
            return self._train(run, first_step, callbacks or Callbacks())
        except torch.OutOfMemoryError:
            raise OutOfMemory(self._memory_advice()) from None

    def _train(self, run: Run, first_step: int, callbacks: Callbacks) -> int:
        """Run the loop over steps."""
        self.method.prepare(lambda _: None)
        done, first, state = first_step, rank() == 0, (self.method, self.optimizer, self.scaler)
        parallel, plan = data_parallel(self.method, self.accumulate), self.plan
        checkpoints = callbacks.checkpoints
        with (
            CheckpointWriter(run if first else None, checkpoints.keep) as writer,
            MetricLogger(
                [json_lines(run.log), *callbacks.loggers] if first else [], callbacks.observe
            ) as log,
        ):
            if first_step == 0:
                writer.save(0, *state, milestone=True)
                writer.wait()  # a full disk is found before the first step
            saved = start = time.perf_counter()
            for step, loaded in enumerate(self.batches(first_step), first_step):
                waited = time.perf_counter() - start
                batch, context = self.prefetch(loaded), autocast(self.precision, self.device)
                options = (self.accumulate, parallel, self.scaler, self.graph)
                metrics = train_step(self.method, self.optimizer, batch, step, plan, context, *options)
                log.wait()  # for the step before: the host is at most one step ahead
                seconds = time.perf_counter() - start
                throughput = world() * batch.num_images / seconds
                speed = {"images_per_second": throughput, "data_wait": waited / seconds}
                if self.device.type == "cuda":
                    speed["device_memory"] = torch.cuda.max_memory_allocated(self.device)
                log.add(step, metrics, {**speed, **callbacks.eval_hook(step)}, loaded.broken)
                done = step + 1
                stop = callbacks.is_stopped(done, self.device)
                milestone = done % checkpoints.milestone_every == 0 or done == plan.steps
                if milestone or stop or checkpoints.is_due(done, time.perf_counter() - saved):
                    log.flush()
                    writer.save(done, *state, milestone=milestone)
                    saved = time.perf_counter()
                writer.check()
                if stop:
                    break
                start = time.perf_counter()  # callbacks and checkpoints do not count as training
        barrier()  # a rank that ends before the last checkpoint is written may have the first one killed
        return done

    def prefetch(self, loaded: LoadedBatch) -> Batch:
        """Finish and normalize a batch, with CUDA on a side stream while the step before is computed."""
        recipe, device, side = self.recipe, self.device, None
        if device.type == "cuda":
            side = self.side_stream = self.side_stream or torch.cuda.Stream(device)
        with torch.cuda.stream(side):  # without a stream nothing changes
            crops = normalize(loaded.finish(device), recipe.mean, recipe.std, device)
            labels = None if loaded.labels is None else loaded.labels.to(device, non_blocking=True)
        if side is not None:
            current = torch.cuda.current_stream(device)
            current.wait_stream(side)
            for tensor in (*crops, *([] if labels is None else [labels])):
                tensor.record_stream(current)  # its memory is free again when the step has used it
        assert loaded.randomness is not None
        return Batch(crops, labels, loaded.randomness, loaded.indices)

    def _memory_advice(self) -> str:
        """Name the next larger --accumulate that the batch allows, or a smaller batch."""
        parts, own = self.accumulate, self.recipe.batch_size // world()
        full = f"{self.device} is out of memory with {own // parts} images at once"
        for more in range(parts + 1, own + 1):
            with suppress(SettingError):
                check_batch(self.recipe, more, num_classes(self.images))
                return f"{full}: continue with --resume --accumulate {more}; the result is the same"
        if own > parts:
            return f"{full}: start again with --batch-size {own // 2 * world()}"
        return f"{full}: start again with a lower --local-crops or --global-size, or a smaller --architecture"


def in_words(changes: Mapping[str, tuple[Any, Any]]) -> str:
    """Describe changed settings."""
    return ", ".join(f"{name} was {before}, now {after}" for name, (before, after) in changes.items())


def _settings(config: Mapping[str, Any]) -> dict[str, Any]:
    """Return the settings that determine the result of a run, by names with dots."""
    recipe = asdict(recipe_of(config))
    recipe["method"]["name"] = config["method"]
    settings = recipe | {name: config.get(name) for name in ("seed", "num_images", "data", "precision")}
    while nested := [name for name, value in settings.items() if isinstance(value, dict)]:
        for name in nested:
            settings |= {f"{name}.{key}": value for key, value in settings.pop(name).items()}
    return settings
