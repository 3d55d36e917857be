"""`python -m training pretrain`: pictures in, a run's folder out."""

import dataclasses
import json
import math
import signal
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any, Literal

import torch
import tyro

from dino_model.backbones import (
    BackboneConfig,
    choose_training_attention,
    create_backbone,
    feature_width,
)
from dino_model.device import ComputePrecision, Precision, choose_device, choose_precision
from dino_model.head import ProjectionHead
from dino_model.images import ImageError, Images, open_images
from training import crops, recipes
from training.checkpoint import Run, RunError, initialise, initialise_backbones
from training.data import batches
from training.loop import Diverged, Rates, train
from training.methods.dino import DINO, DINOSchedules, Network
from training.monitor import Monitor, Probe, Progress
from training.optim import create_optimizer
from training.recipes import Recipe
from training.schedules import cosine

RecipeName = Literal["official-default", "paper", "small-data"]


@dataclass(frozen=True)
class Choice:
    """What has to be known before the recipe's settings can be shown or changed."""

    data: Path
    """Pictures: a folder (flat or nested, labelled or not), an uncompressed tar or a text file of paths."""
    output: Path
    """Folder of the run: configuration, checkpoints and log."""
    recipe: RecipeName = "official-default"
    """Where the settings below start from."""
    exclude: Path | None = None
    """Text file with names of pictures to leave out, one a line."""


@dataclass(frozen=True)
class Peek(Choice):
    """A first look at the command line: what the recipe is derived from."""

    epochs: int | None = None
    batch_size: int | None = None


@dataclass(frozen=True)
class Pretrain(Choice):
    """Train a backbone without labels (DINO)."""

    resume: bool = False
    """Go on with the run in --output: weights, optimizer, center, schedules and data order."""
    init_from: Path | None = None
    """Start from the weights of another run or checkpoint; nothing else of it is taken."""
    init_backbone: str | None = None
    """Start from the backbone of any model, by the names that --model takes elsewhere; the head is fresh."""
    seed: int = 0
    """Of weights, data order and crops."""
    workers: int = 2
    """Processes that cut crops; 0: none but this one."""
    device: str = "auto"
    """auto, cpu, mps or cuda."""
    precision: Precision = "auto"
    """auto is bf16 where the hardware has it, else fp32; the loss is always fp32."""
    save_every: int = 200
    """Steps between checkpoints."""
    milestone_every: int = 5000
    """Steps between checkpoints that are kept."""
    probe_every: int = 1000
    """Steps between k-NN probes of teacher and student on labelled pictures; 0 for none."""
    settings: Recipe = field(default_factory=Recipe)
    """The recipe's settings."""

    def run(self) -> None:
        """Check, build, train."""
        check_options(self)
        device = choose_device(self.device)
        precision = choose_precision(self.precision, device)
        images = open_images(self.data, exclude=self.exclude)
        check(self.settings, len(images))
        torch.manual_seed(self.seed)
        session = Session(self, self.settings, images, device, precision)
        run = Run(self.output)
        first_step = session.start(run)
        session.train(run, first_step)


class Session:
    """Everything a recipe becomes on given pictures and a device."""

    def __init__(
        self,
        options: Pretrain,
        recipe: Recipe,
        images: Images,
        device: torch.device,
        precision: ComputePrecision,
    ) -> None:
        self.options, self.recipe, self.images = options, recipe, images
        self.device, self.precision = device, precision
        steps_per_epoch = len(images) // recipe.batch_size
        self.rates = rates(recipe, steps_per_epoch)
        self.steps = len(self.rates.lr)
        self.method = build_dino(recipe, steps_per_epoch).to(device)
        choose_training_attention(self.method, device, precision)
        self.optimizer = create_optimizer(recipe.optimizer.name, self.method.parameter_groups(), device)

    def start(self, run: Run) -> int:
        """Create or resume the run; returns the number of steps already done."""
        options, config = self.options, self.config()
        if options.resume:
            changed = _differences(_completed(run.config()), config)
            if changed:
                raise RunError(
                    f"cannot resume {run.folder} with other settings: {changed}. Pass its own or --init-from"
                )
            done = run.load(self.method, self.optimizer)
            print(f"{run.folder}: going on at step {done} of {self.steps}")
            return done
        if options.init_from:
            step = initialise(self.method, options.init_from)
            print(f"weights of {options.init_from}, step {step}")
        if options.init_backbone:
            networks = (self.method.student, self.method.teacher)
            initialise_backbones([network.backbone for network in networks], options.init_backbone)
            print(f"backbone of {options.init_backbone}, a fresh head")
        run.create(config)
        return 0

    def config(self) -> dict[str, Any]:
        """What decides the result of the run, for its config.json."""
        inputs = {
            "data": self.images.fingerprint(),
            "pictures": len(self.images),
            "seed": self.options.seed,
            "precision": self.precision,
        }
        backbone = dataclasses.replace(self.recipe.backbone, drop_path=0.0)  # as the teacher is built
        return {
            "format": 1,
            "method": "dino",
            "backbone": asdict(backbone),
            "recipe": asdict(self.recipe),
        } | inputs

    def train(self, run: Run, first_step: int) -> None:
        """Train to the end, or until told to stop.

        Raises:
            RunError: the loss diverged; the newest checkpoint is from before.
        """
        options, recipe = self.options, self.recipe
        print(
            f"{len(self.images):,} pictures, {self.steps:,} steps of {recipe.batch_size} "
            f"in {recipe.epochs} epochs, {self.device.type}, {self.precision}; "
            f"ln K = {math.log(recipe.head.prototypes):.3f}"
        )
        monitor = self.monitor(first_step)
        pictures = batches(
            self.images,
            recipe.crops,
            batch_size=recipe.batch_size,
            seed=options.seed,
            first_step=first_step,
            steps=self.steps,
            workers=options.workers,
        )
        try:
            with stop_signal() as interrupted:
                done = train(
                    self.method,
                    self.optimizer,
                    pictures,
                    self.rates,
                    run=run,
                    first_step=first_step,
                    device=self.device,
                    precision=self.precision,
                    save_every=options.save_every,
                    milestone_every=options.milestone_every,
                    observe=monitor,
                    interrupted=interrupted,
                )
        except Diverged as error:
            raise RunError(
                f"{error}: {run.checkpoint} is from before; lower --lr or pass --precision fp32"
            ) from None
        finally:
            monitor.progress.end()
        if monitor.broken:
            print(f"{len(monitor.broken)} unreadable pictures were skipped")
        goes_on = ", --resume goes on" if done < self.steps else ""
        print(f"{run.folder}: {done:,} of {self.steps:,} steps done{goes_on}")

    def monitor(self, first_step: int) -> Monitor:
        """What watches the run."""
        every, recipe = self.options.probe_every, self.recipe
        probe = None
        if every and (self.images.labels is None or len(self.images) < 10):
            print("no k-NN probe: it needs 10 pictures or more, in a folder for each class")
        elif every:
            probe = Probe(self.images, recipe.crops.global_size, self.precision, self.device)
        return Monitor(
            Progress(first_step, self.steps, recipe.batch_size),
            recipe.head.prototypes,
            {"teacher": self.method.teacher.backbone, "student": self.method.student.backbone},
            probe,
            every,
        )


def build_dino(recipe: Recipe, steps_per_epoch: int) -> DINO:
    """Student, teacher and center with fresh weights; only the student has stochastic depth."""

    def network(backbone: BackboneConfig) -> Network:
        body = create_backbone(backbone)
        return Network(body, ProjectionHead(feature_width(body), recipe.head))

    student, teacher = (
        network(config) for config in (recipe.backbone, dataclasses.replace(recipe.backbone, drop_path=0.0))
    )
    schedules = DINOSchedules.of(recipe.dino, recipe.epochs, steps_per_epoch)
    return DINO(student, teacher, recipe.head.prototypes, recipe.dino, schedules)


def rates(recipe: Recipe, steps_per_epoch: int) -> Rates:
    """Learning rate and weight decay of every step."""
    optimizer, steps = recipe.optimizer, recipe.epochs * steps_per_epoch
    peak = optimizer.lr * recipe.batch_size / 256
    return Rates(
        cosine(peak, optimizer.min_lr, steps, optimizer.warmup_epochs * steps_per_epoch),
        cosine(optimizer.weight_decay, optimizer.weight_decay_end, steps),
        optimizer.clip_grad,
    )


def check_options(options: Pretrain) -> None:
    """Raise ValueError for options that cannot be, naming the option."""
    if options.init_from and options.init_backbone:
        raise ValueError("--init-from and --init-backbone both name where to start: choose one")
    least = {"save_every": 1, "milestone_every": 1, "probe_every": 0, "workers": 0}
    for name, smallest in least.items():
        value = getattr(options, name)
        if value < smallest:
            raise ValueError(f"--{name.replace('_', '-')} is {value}, expected at least {smallest}")


def check(recipe: Recipe, pictures: int) -> None:
    """Raise ValueError for a recipe that cannot be trained on so many pictures, naming the setting."""
    if recipe.backbone.in_channels != 3:
        raise ValueError(
            f"in_channels is {recipe.backbone.in_channels}, but pictures are read as RGB: expected 3"
        )
    patch_size = 1 if recipe.backbone.architecture == "resnet50" else recipe.backbone.patch_size
    crops.check(recipe.crops, patch_size)
    for name, value in (("epochs", recipe.epochs), ("batch_size", recipe.batch_size)):
        if value < 1:
            raise ValueError(f"{name} is {value}, expected at least 1")
    if pictures < recipe.batch_size:
        raise ValueError(
            f"{pictures} pictures are fewer than one batch of {recipe.batch_size}: lower --batch-size"
        )
    for name, epochs in (
        ("warmup_epochs", recipe.optimizer.warmup_epochs),
        ("teacher_temperature_warmup_epochs", recipe.dino.teacher_temperature_warmup_epochs),
        ("freeze_last_layer_epochs", recipe.dino.freeze_last_layer_epochs),
    ):
        flag = "--" + name.replace("_", "-")
        if epochs < 0:
            raise ValueError(f"{flag} is {epochs}, expected at least 0")
        if epochs > recipe.epochs:
            raise ValueError(f"{flag} {epochs} is longer than training of {recipe.epochs} epochs: shorten it")
    temperatures = (recipe.dino.student_temperature, recipe.dino.teacher_temperature)
    if min(*temperatures, recipe.dino.teacher_temperature_start) <= 0:
        raise ValueError("temperatures have to be above 0")
    for name, momentum in (
        ("teacher_momentum", recipe.dino.teacher_momentum),
        ("center_momentum", recipe.dino.center_momentum),
    ):
        if not 0 <= momentum <= 1:
            raise ValueError(f"{name} is {momentum}, expected 0 to 1")
    for name, rate in asdict(recipe.optimizer).items():
        if name != "name" and not 0 <= rate < math.inf:  # refuses NaN too
            flag = "--" + name.replace("_", "-")
            raise ValueError(f"{flag} is {rate}, expected a number of at least 0")


@contextmanager
def stop_signal() -> Iterator[Callable[[], bool]]:
    """Tells whether to stop after the step at hand: on Ctrl-C or SIGTERM; a second Ctrl-C stops at once."""
    received: list[int] = []

    def note(number: int, _frame: object) -> None:
        received.append(number)
        signal.signal(signal.SIGINT, signal.default_int_handler)

    former = {number: signal.signal(number, note) for number in (signal.SIGINT, signal.SIGTERM)}
    try:
        yield lambda: bool(received)
    finally:
        for number, handler in former.items():
            signal.signal(number, handler)


def parse(arguments: list[str]) -> Pretrain:
    """The command line; the defaults of the settings are the chosen recipe's, printed with its reasons."""
    if {"-h", "--help"} & set(arguments):
        return tyro.cli(
            tyro.conf.OmitArgPrefixes[Pretrain], args=arguments, prog="python -m training pretrain"
        )
    choice, _ = tyro.cli(Peek, args=arguments, return_unknown_args=True, prog="python -m training pretrain")
    default = Pretrain(
        **{f.name: getattr(choice, f.name) for f in dataclasses.fields(Choice)}, settings=start(choice)
    )
    return tyro.cli(
        tyro.conf.OmitArgPrefixes[Pretrain],
        args=arguments,
        default=default,
        prog="python -m training pretrain",
    )


def start(choice: Peek) -> Recipe:
    """The chosen recipe before single settings are changed."""
    if choice.recipe != "small-data":
        return announce(choice.recipe, recipes.PUBLISHED[choice.recipe]())
    images = open_images(choice.data, exclude=choice.exclude)
    short_side = recipes.typical_short_side(sampled_sizes(images))
    given = {"epochs": choice.epochs, "batch_size": choice.batch_size}
    advice = recipes.small_data(
        len(images), short_side, **{name: value for name, value in given.items() if value is not None}
    )
    return announce(choice.recipe, advice)


def sampled_sizes(images: Images) -> list[tuple[int, int]]:
    """Height and width of some twenty pictures, taken evenly; broken ones are passed over.

    Raises:
        ImageError: all of them are broken.
    """
    sizes = []
    for index in range(0, len(images), max(1, len(images) // 20)):
        with suppress(ImageError):
            height, width, _ = images.read(index).shape
            sizes.append((height, width))
    if not sizes:
        images.read(0)  # says what is wrong with it
    return sizes


def announce(name: str, advice: recipes.Advice) -> Recipe:
    """Print where the settings come from."""
    print(f"recipe {name}, before other options change it:", *advice.reasons, sep="\n  ")
    return advice.recipe


def _completed(config: dict[str, Any]) -> dict[str, Any]:
    """A run's configuration; settings younger than the run get their defaults, which change nothing."""
    return _merged({"recipe": json.loads(json.dumps(asdict(Recipe())))}, config)


def _merged(defaults: dict[str, Any], found: dict[str, Any]) -> dict[str, Any]:
    """What is found, and the defaults of what it lacks, at every depth."""
    deeper = {
        name for name in found if isinstance(found[name], dict) and isinstance(defaults.get(name), dict)
    }
    return defaults | found | {name: _merged(defaults[name], found[name]) for name in deeper}


def _differences(old: dict[str, Any], new: dict[str, Any], prefix: str = "") -> str:
    """Settings that differ, in words."""
    found = []
    new = json.loads(json.dumps(new))
    for key in sorted({*old, *new}):
        before, after = old.get(key), new.get(key)
        if isinstance(before, dict) and isinstance(after, dict):
            found.append(_differences(before, after, f"{prefix}{key}."))
        elif before != after:
            found.append(f"{prefix}{key} was {before}, now {after}")
    return ", ".join(text for text in found if text)
