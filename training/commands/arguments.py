"""Command line of `python -m training pretrain`, without importing torch.

The defaults of the settings are those of the chosen recipe, or of the run that is resumed. They are not known
before --method, --recipe, --resume and a few sizes are, so the command line is parsed twice.
"""

import dataclasses
import os
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path

import tyro

from dino_model.collections import Images, open_images
from dino_model.configs import HeadConfig, Precision
from dino_model.errors import SettingError
from dino_model.images import ImageError
from training import presets
from training.loggers import LoggerName, check_loggers
from training.presets import PresetName
from training.recipe import METHODS, MethodName, Recipe, recipe_of
from training.run import Run, RunError
from training.settings import at_least

PROGRAM = "python -m training pretrain"


@dataclass(frozen=True)
class RunChoice:
    """Options that decide which defaults the others have."""

    data: tuple[str, ...] = ()
    """Images: a folder (flat or nested, labelled or not), an uncompressed tar, several ('train/*.tar',
    'shard-{000..127}.tar', 's3://…'), a text file of paths (of images or tars), or several of these."""
    output: Path | None = None
    """Folder of the run: configuration, checkpoints and log."""
    resume: Path | None = None
    """Resume the run in this folder with its own settings, except those named here. Without a folder: the
    folder of --output. A run that does not exist yet is started."""
    overwrite: bool = False
    """Replace the run in the folder of --output."""
    method: MethodName = "dino"
    """Pretraining method."""
    recipe: PresetName | None = None
    """Defaults of the settings below. Default: the method's first recipe."""
    exclude: Path | None = None
    """Text file with names of images to leave out, one a line."""


@dataclass(frozen=True)
class Pretrain(RunChoice):
    """Train a backbone without labels (or with labels, as a comparison)."""

    init_from: Path | None = None
    """Start from the weights of another run or checkpoint; nothing else of it is used."""
    init_backbone: str | None = None
    """Start from the backbone of any model, by its --model name; the head has fresh weights."""
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
    """Micro-batches of a step, computed one after the other to save memory; the result does not change."""
    checkpoint_activations: bool = False
    """Keep only the input of every block and recompute it for the gradients: slower, to save memory; the
    result does not change."""
    compile: bool = False
    """Compile every block with torch.compile: minutes at the start, for long runs on a GPU."""
    save_minutes: float = 5.0
    """Minutes between checkpoints, which are written while training continues; 0: none by time."""
    save_every: int = 0
    """Steps between checkpoints; 0: none by steps."""
    milestone_every: int = 5000
    """Steps between checkpoints that stay."""
    keep: int = 0
    """Number of milestones that stay, the newest; 0: all."""
    probe_every: int = 1000
    """Steps between k-NN probes of every network on labelled images; 0: none."""
    log: tuple[LoggerName, ...] = ()
    """Further loggers: tensorboard, wandb, or both, where they are installed."""
    settings: Recipe = field(default_factory=Recipe)
    """Settings of the recipe."""

    @property
    def folder(self) -> Path:
        """Folder of the run.

        Raises:
            SettingError: No folder is named, or two.
        """
        if self.resume and self.output and self.resume.resolve() != self.output.resolve():
            raise SettingError(f"--resume {self.resume} continues in its own folder: leave --output out")
        folder = self.resume or self.output
        if folder is None:
            raise SettingError("no folder for the run: pass --output")
        return folder

    def check(self) -> None:
        """Raise SettingError or RunError for options that cannot be used, before any data is opened."""
        if self.init_from and self.init_backbone:
            raise SettingError("--init-from and --init-backbone both name where to start: choose one")
        trained = self.settings.method.name
        if self.method != trained:
            raise SettingError(
                f"--method is {self.method}, but the run was started with {trained}: leave it out"
            )
        if not self.data:
            raise SettingError("no images: pass --data with a folder, an uncompressed tar or a list of paths")
        check_loggers(self.log)
        at_least(self, accumulate=1, save_every=0, save_minutes=0, milestone_every=1, probe_every=0, keep=0)
        if self.workers is not None:
            at_least(self, workers=0)
        self.check_folder()

    def check_folder(self) -> None:
        """Raise SettingError or RunError for a folder that already holds a run which is to stay."""
        if self.overwrite and self.resume:
            raise SettingError("--overwrite replaces the run that --resume continues: choose one of the two")
        run = Run(self.folder)
        if not self.resume and not self.overwrite:
            run.check_absent()


@dataclass(frozen=True)
class PartialArgs(RunChoice):
    """Options that the recipe's defaults are derived from."""

    epochs: int | None = None
    batch_size: int | None = None
    patch_size: int | None = None
    global_size: int | None = None
    image_size: int | None = None


def parse(arguments: Sequence[str]) -> Pretrain:
    """Parse the command line; all options are checked before images are opened."""
    arguments = _with_folder(list(arguments))
    refuse_unknown(arguments)
    without_help = [word for word in arguments if word not in ("-h", "--help")]
    choice, _ = tyro.cli(PartialArgs, args=without_help, return_unknown_args=True, prog=PROGRAM)
    run = Run(choice.resume) if choice.resume else None
    if run and (run.folder / "config.json").is_file():
        return _parse_all(arguments, of_run(run, choice))
    if presets.find_preset(choice.method, choice.recipe) != "small-data":
        options = _parse_all(arguments, of_recipe(choice, presets.NOMINAL_IMAGES))
        _print_reasons(choice, presets.NOMINAL_IMAGES)
        return options
    preliminary = None
    with suppress(SettingError):  # sizes that do not fit nominal images may fit these
        preliminary = _parse_all(arguments, of_recipe(choice, presets.NOMINAL_IMAGES))
    if preliminary:
        preliminary.check()
    images = _image_sizes(choice)
    _print_reasons(choice, images)
    return _parse_all(arguments, of_recipe(choice, images))


def _parse_all(arguments: Sequence[str], default: Pretrain) -> Pretrain:
    refuse_options_of_others(arguments, default.method)
    return tyro.cli(
        tyro.conf.AvoidSubcommands[tyro.conf.OmitArgPrefixes[Pretrain]],
        args=arguments,
        default=default,
        prog=PROGRAM,
    )


def refuse_unknown(arguments: Sequence[str]) -> None:
    """Raise SettingError for an unknown method or recipe."""
    recipes = {name for method in METHODS for name in presets.preset_names(method)}
    known = {"method": set(METHODS), "recipe": recipes}
    for word, following in zip(arguments, [*arguments[1:], ""], strict=True):
        option, _, value = word.partition("=")
        names = known.get(option.removeprefix("--"), set()) if option.startswith("--") else set()
        if names and (value or following) not in names:
            raise SettingError(f"{option} is {value or following!r}, expected {' or '.join(sorted(names))}")


def refuse_options_of_others(arguments: Sequence[str], method: str) -> None:
    """Raise SettingError for the first option that belongs to other methods than the chosen one."""

    def options(config: type) -> set[str]:
        names = {field.name for field in dataclasses.fields(config)}
        return names | (
            {field.name for field in dataclasses.fields(HeadConfig)} if "head" in names else set()
        )

    for word in arguments:
        name = word.split("=")[0].removeprefix("--").removeprefix("no-").replace("-", "_")
        owners = [owner for owner, config in METHODS.items() if name in options(config)]
        if word.startswith("--") and owners and method not in owners:
            raise SettingError(
                f"{method} has no {word.split('=')[0]}: that is an option of {', '.join(owners)}"
            )


def of_recipe(choice: PartialArgs, images: tuple[int, int]) -> Pretrain:
    """Return the options of a new run with the chosen recipe, for (number, short side) of the images."""
    name, preset = _preset(choice, images)
    settings = preset.recipe
    if choice.global_size is not None and choice.image_size is None:
        backbone = dataclasses.replace(settings.backbone, image_size=choice.global_size)
        settings = dataclasses.replace(settings, backbone=backbone)
    chosen = {f.name: getattr(choice, f.name) for f in dataclasses.fields(RunChoice)}
    return Pretrain(**chosen | {"recipe": name, "settings": settings})


def _preset(choice: PartialArgs, images: tuple[int, int]) -> tuple[str, presets.Preset]:
    name = presets.find_preset(choice.method, choice.recipe)
    if name != "small-data":
        return name, presets.PRESETS[choice.method][name]
    given = {name: getattr(choice, name) for name in ("epochs", "batch_size", "patch_size")}
    options = {name: value for name, value in given.items() if value is not None}
    return name, presets.small_data(choice.method, *images, **options)


def _print_reasons(choice: PartialArgs, images: tuple[int, int]) -> None:
    if os.environ.get("RANK", "0") == "0":
        name, preset = _preset(choice, images)
        print(f"recipe {name}, before other options change it:", *preset.reasons, sep="\n  ")
        if preset.expected:
            print(f"  expected: {preset.expected}")


def of_run(run: Run, choice: PartialArgs) -> Pretrain:
    """Return the options of a run that is resumed.

    Raises:
        RunError: Another method or recipe is requested.
    """
    config = run.config()
    name = config.get("method")
    if name not in METHODS:
        raise RunError(f"{run.folder} was trained with {name!r}, an unknown method of another version")
    options = config.get("options", {})
    init = config.get("init", {})
    recipe = options.get("recipe")
    if choice.recipe and recipe and choice.recipe != recipe:
        raise RunError(f"{run.folder} was started with --recipe {recipe}: pass no other to resume it")
    return Pretrain(
        data=_sources(options.get("data")),
        output=choice.output,
        resume=run.folder,
        method=name,
        recipe=choice.recipe or recipe,
        exclude=_path(options.get("exclude")),
        init_from=_path(init.get("from")),
        init_backbone=init.get("backbone"),
        seed=config.get("seed", 0),
        precision=config.get("precision", "auto"),
        accumulate=options.get("accumulate", 1),
        settings=recipe_of(config),
    )


def sampled_sizes(images: Images) -> list[tuple[int, int]]:
    """Return height and width of about twenty images, taken evenly; damaged ones are skipped.

    Raises:
        ImageError: All of them are damaged.
    """
    sizes = []
    for index in range(0, len(images), max(1, len(images) // 20)):
        with suppress(ImageError):
            height, width, _ = images.read(index).shape
            sizes.append((height, width))
    if not sizes:
        images.read(0)  # raises the reason
    return sizes


def _image_sizes(choice: RunChoice) -> tuple[int, int]:
    """Number of images, and the short side of a typical one."""
    images = open_images(choice.data, exclude=choice.exclude)
    return len(images), presets.typical_short_side(sampled_sizes(images))


def _names(arguments: Sequence[str], option: str) -> bool:
    return any(word.partition("=")[0] == option for word in arguments)


def _with_folder(arguments: list[str]) -> list[str]:
    """Complete `--resume` without a folder by that of --output; a worker that torchrun restarts resumes."""
    if os.environ.get("TORCHELASTIC_RESTART_COUNT", "0") != "0" and not _names(arguments, "--resume"):
        arguments = [*(word for word in arguments if word != "--overwrite"), "--resume"]
    for i, word in enumerate(arguments):
        if word == "--resume" and (i + 1 == len(arguments) or arguments[i + 1].startswith("-")):
            rest = arguments[:i] + arguments[i + 1 :]
            choice, _ = tyro.cli(PartialArgs, args=rest, return_unknown_args=True)
            if choice.output is not None:
                return [*arguments[: i + 1], str(choice.output), *arguments[i + 1 :]]
    return arguments


def _sources(stored: str | list[str] | None) -> tuple[str, ...]:
    return (stored,) if isinstance(stored, str) else tuple(stored or ())


def _path(name: str | None) -> Path | None:
    return None if name is None else Path(name)
