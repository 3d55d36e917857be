"""Command line of `python -m training pretrain`, without importing torch.

The defaults of the settings are those of the chosen recipe, or of the run that is resumed. A first, partial
parse of the command line finds them.
"""

import dataclasses
import os
import pkgutil
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from importlib.util import find_spec
from pathlib import Path
from typing import Any, Literal

import tyro
from tyro.constructors import ConstructorRegistry, PrimitiveConstructorSpec, PrimitiveTypeInfo

from dino_model.data.channels import ChannelStatistics, measure_channels
from dino_model.data.classes import LabelOptions
from dino_model.data.collection import Images, open_images
from dino_model.data.images import ImageError
from dino_model.runtime.errors import SettingError
from dino_model.runtime.precision import Precision
from training.methods.table import METHODS
from training.recipes import named_recipes
from training.recipes.recipe import Recipe, method_of, recipe_of
from training.recipes.validation import at_least, flag
from training.run.folder import Run, RunError, SaveSchedule

PROGRAM = "python -m training pretrain"


class MethodName(str):
    """Name of a method in the table."""


class RecipeName(str):
    """Name of a recipe of any method."""


def name_rules() -> ConstructorRegistry:
    """Return the rules by which tyro reads these names: the choices are the names now in the tables."""
    registry = ConstructorRegistry()

    @registry.primitive_rule
    def read_name(info: PrimitiveTypeInfo) -> PrimitiveConstructorSpec[str] | None:
        kind = next((kind for kind in (MethodName, RecipeName) if info.type in (kind, kind | None)), None)
        if kind is None:
            return None
        names = tuple(METHODS if kind is MethodName else named_recipes.recipe_names())
        return PrimitiveConstructorSpec(
            nargs=1,
            metavar="{" + ",".join(names) + "}",
            instance_from_str=lambda words: kind(words[0]),
            is_instance=lambda value: value is None or isinstance(value, str),
            str_from_instance=lambda name: [str(name)],
            choices=names,
        )

    return registry


@dataclass(frozen=True)
class RunOptions(LabelOptions):
    """Options that are no settings of a recipe."""

    data: tuple[str, ...] = ()
    """Images: a folder (flat or nested, labeled or not), an uncompressed tar, a text file of paths (of images
    or tars), or several of these. Patterns name several tars ('train/*.tar', 'shard-{000..127}.tar',
    's3://…') or images ('*/*.jpg'). 'textures:' and 'textures:test' are generated."""
    output: Path | None = None
    """Folder of the run: configuration, checkpoints and log."""
    resume: bool = False
    """Resume the run in --output with its own settings, except those named here. A run that does not exist
    yet is started."""
    accept_data_change: bool = False
    """Resume although images were added, removed or changed; the run records them."""
    overwrite: bool = False
    """Replace the run in --output."""
    method: MethodName | None = None
    """Pretraining method."""
    recipe: RecipeName | None = None
    """Defaults of the settings below. Default: the method's first recipe."""
    exclude: Path | None = None
    """Text file with names of images to leave out, one a line."""
    init_from: Path | None = None
    """Start from the weights of another run, or from a full checkpoint of the official DINO code. Only
    student, teacher, projection heads and center are used."""
    init_backbone: str | None = None
    """Start from the backbone of a model, by its --model name: a ResNet-50, or a ViT with learned positions,
    [CLS] and no registers. The head has fresh weights."""
    seed: int = 0
    """Seed of weights, data order, crops and stochastic depth."""
    workers: int | None = None
    """Processes that load images; 0: none but this one. Default: with CUDA all cores of this process, divided
    by the processes of this machine; without CUDA 2."""
    device: str = "auto"
    """auto, cpu, mps or cuda."""
    precision: Precision = "auto"
    """auto: bf16 where the hardware has it, fp16 on older CUDA devices, else fp32. The loss is fp32."""
    accumulate: int = 1
    """Micro-batches of a step, computed one after the other to save memory. The result is the same;
    options whose loss needs the whole batch at once refuse it."""
    checkpoint_activations: bool = False
    """Keep only the input of every block of a ViT and recompute the rest for the gradients: slower, to save
    memory."""
    compile: bool = False
    """Compile the blocks of a ViT with torch.compile, which takes a minute at the start: for GPUs."""
    cuda_graph: bool = False
    """Launch losses and gradients as one CUDA graph, which frees the host: DINO without options of
    ablations, on one GPU in bf16 or fp32."""
    checkpoints: SaveSchedule = field(default_factory=SaveSchedule)
    """Checkpoints of the run."""
    probe_every: int = 1000
    """Steps between k-NN probes of every network on labeled images; 0: none."""
    log: tuple[Literal["tensorboard", "wandb"], ...] = ()
    """Further loggers: tensorboard, wandb, or both, where they are installed."""

    @property
    def run(self) -> Run:
        """The run in --output; raises SettingError if no folder is named."""
        if self.output is None:
            raise SettingError("no folder for the run: pass --output")
        return Run(self.output)

    def check(self) -> None:
        """Raise SettingError or RunError for options that cannot be used, before any data is opened."""
        if self.init_from and self.init_backbone:
            raise SettingError("--init-from and --init-backbone both name where to start: choose one")
        if not self.data:
            raise SettingError("no images: pass --data with a folder, an uncompressed tar or a list of paths")
        for name in self.log:
            if find_spec(name) is None:
                raise SettingError(f"--log {name}: the package is not installed, run `pip install {name}`")
        at_least(self, accumulate=1, probe_every=0)
        if self.workers is not None:
            at_least(self, workers=0)
        if self.overwrite and self.resume:
            raise SettingError("--overwrite replaces the run that --resume continues: choose one of the two")
        if not self.resume and not self.overwrite:
            self.run.check_absent()


@dataclass(frozen=True)
class Pretrain(RunOptions):
    """Train a backbone without labels (or with labels, as a comparison)."""

    settings: Recipe = field(default_factory=Recipe)
    """Settings of the recipe."""


FLAT = tyro.conf.AvoidSubcommands[tyro.conf.OmitArgPrefixes[Pretrain]]
"""Type of the whole command line: settings without prefix, such as `--epochs`."""


@dataclass(frozen=True)
class PartialArgs(RunOptions):
    """Options other than settings of the recipe, and the options that determine the recipe's defaults."""

    epochs: int | None = None
    batch_size: int | None = None
    channels: int | None = None
    patch_size: int | None = None
    global_size: int | None = None
    image_size: int | None = None


def main(words: Sequence[str]) -> int:
    """Train a backbone without labels (or with labels, as a comparison)."""
    options = parse(words)
    status: int = pkgutil.resolve_name("training.commands.pretrain:run")(options)  # imports torch
    return status


def parse(arguments: Sequence[str]) -> Pretrain:
    """Parse and check the command line; the options of the run are checked before images are opened."""
    if os.environ.get("TORCHELASTIC_RESTART_COUNT", "0") != "0":  # torchrun has restarted this process
        arguments = [*(word for word in arguments if word not in ("--overwrite", "--resume")), "--resume"]
    help_ = {"-h", "--help"}.intersection(arguments)
    words = [word for word in arguments if word not in help_]
    kind = tyro.conf.OmitArgPrefixes[PartialArgs]
    with name_rules():
        choice, _ = tyro.cli(kind, args=words, return_unknown_args=True, prog=PROGRAM)
    if choice.resume and choice.output and Run(choice.output).config_file.is_file():
        options = _parse_all(arguments, of_run(choice))
        options.check()
        if options.method != options.settings.method.name:
            trained = options.settings.method.name
            raise SettingError(f"--method is {options.method}, but the run was started with {trained}")
        return options
    images, statistics = named_recipes.NOMINAL_IMAGES, None
    default, named = of_recipe(choice, images, statistics)
    if not help_:
        try:
            choice.check()
        except SettingError:
            _parse_all(arguments, default)  # a misspelled option comes first
            raise
        if choice.init_backbone:
            from dino_model.models.catalogue import check_name  # imports torch

            check_name(choice.init_backbone)
    if not help_ and (choice.channels is not None or default.recipe == named_recipes.SMALL_DATA):
        collection = open_images(
            choice.data, exclude=choice.exclude, options=choice, arrays=choice.channels is not None
        )
        if choice.channels is not None:
            statistics = measure_channels(collection.raw_channels(choice.channels))
            collection = dataclasses.replace(collection, channel_range=statistics.range)
        images = len(collection), _short_side(collection)
        default, named = of_recipe(choice, images, statistics)
    options = _parse_all(arguments, default)
    if os.environ.get("RANK", "0") == "0":
        chosen = f"method {default.method}, recipe {default.recipe}"
        print(f"{chosen}, before other options change it: {named.source}")
        print(f"  expected: {named.expected}" if named.expected else "")
    return options


def _parse_all(arguments: Sequence[str], default: Pretrain) -> Pretrain:
    own, method = option_names(default), default.settings.method.name
    for word in arguments:
        name = word.partition("=")[0].replace("--no-", "--")
        owners = [other for other, config in METHODS.items() if name in option_names(config())]
        if owners and name not in own:
            raise SettingError(f"{name} is for --method {' or '.join(owners)}, and --method is {method}")
    with name_rules():
        options: Pretrain = tyro.cli(FLAT, args=arguments, default=default, prog=PROGRAM)
    settings = dataclasses.replace(options.settings, method=options.settings.method.resolve())
    return dataclasses.replace(options, settings=settings)


def option_names(settings: Any) -> set[str]:
    """Names of the options of settings and of their parts, such as --epochs."""
    values = {field.name: getattr(settings, field.name) for field in dataclasses.fields(settings)}
    parts = [option_names(value) for value in values.values() if dataclasses.is_dataclass(value)]
    return {flag(name) for name in values}.union(*parts)


def create_parser() -> Any:
    """Create the parser that a command line without options has, for the command reference."""
    default, _ = of_recipe(PartialArgs(), named_recipes.NOMINAL_IMAGES, None)
    with name_rules():
        return tyro.extras.get_parser(FLAT, default=default, prog=PROGRAM)


def of_recipe(
    choice: PartialArgs, images: tuple[int, int], channels: ChannelStatistics | None
) -> tuple[Pretrain, named_recipes.NamedRecipe]:
    """Options of a new run with its recipe, and the recipe; errors as `choose_recipe`.

    `images` are their number and short side in pixels.
    """
    method, name = named_recipes.choose_recipe(choice.method, choice.recipe)
    if name == named_recipes.SMALL_DATA:
        given = (choice.batch_size, choice.epochs, choice.patch_size)
        named = named_recipes.small_data(method, *images, *given)
    else:
        named = named_recipes.read_recipe(method, name)
    backbone, statistics = named.recipe.backbone, {}
    if choice.global_size is not None and choice.image_size is None:
        backbone = dataclasses.replace(backbone, image_size=choice.global_size)
    if channels:
        backbone = dataclasses.replace(backbone, in_channels=len(channels.range))
        statistics = dataclasses.asdict(channels.range) | {"mean": channels.mean, "std": channels.std}
    settings = dataclasses.replace(named.recipe, backbone=backbone, **statistics)
    chosen = {f.name: getattr(choice, f.name) for f in dataclasses.fields(RunOptions)}
    chosen |= {"method": MethodName(method), "recipe": RecipeName(name), "settings": settings}
    return Pretrain(**chosen), named


def of_run(choice: PartialArgs) -> Pretrain:
    """Options of a run that is resumed; raises RunError for another recipe than before."""
    config = choice.run.config()
    options, init = config.get("options", {}), config.get("init", {})
    label_options: Any = dict(options.get("label_options", {}))
    label_options["labels"] = _path(label_options.get("labels"))
    recipe = RecipeName(options["recipe"]) if options.get("recipe") else choice.recipe
    if choice.recipe and choice.recipe != recipe:
        raise RunError(f"{choice.output} was started with --recipe {recipe}: pass no other to resume it")
    return Pretrain(
        data=tuple(options.get("data") or ()),
        output=choice.output,
        resume=True,
        method=MethodName(method_of(config)),
        recipe=recipe,
        exclude=_path(options.get("exclude")),
        init_from=_path(init.get("from")),
        init_backbone=init.get("backbone"),
        seed=config["seed"],
        precision=config["precision"],
        accumulate=options.get("accumulate", 1),
        settings=recipe_of(config),
        **label_options,
    )


def _short_side(images: Images) -> int:
    """Median of the short sides of about twenty images; damaged ones are skipped, unless all are."""
    sides = []
    for index in range(0, len(images), max(1, len(images) // 20)):
        with suppress(ImageError):
            sides.append(min(images.read(index).shape[:2]))
    if not sides:
        images.read(0)  # raises the reason
    return sorted(sides)[len(sides) // 2]


def _path(name: str | None) -> Path | None:
    return None if name is None else Path(name)
