"""What is typed after `python -m training pretrain`, read with the defaults of a recipe or a run."""

import dataclasses
import os
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path

import tyro

from dino_model.errors import SettingError
from dino_model.head import HeadConfig
from dino_model.images import ImageError, Images, open_images
from training import recipes
from training.checkpoint import Run, RunError
from training.commands.pretrain import Choice, Pretrain
from training.recipes import METHODS, RECIPES, recipe_of

PROGRAM = "python -m training pretrain"


@dataclass(frozen=True)
class Peek(Choice):
    """A first look at the command line: what the recipe is derived from."""

    epochs: int | None = None
    batch_size: int | None = None
    global_size: int | None = None
    image_size: int | None = None


def parse(arguments: Sequence[str]) -> Pretrain:
    """The command line; the defaults of the settings are the chosen recipe's or the resumed run's."""
    arguments = _with_folder(list(arguments))
    refuse_unknown(arguments)
    asked = [word for word in arguments if word not in ("-h", "--help")]
    choice, _ = tyro.cli(Peek, args=asked, return_unknown_args=True, prog=PROGRAM)
    run = Run(choice.resume) if choice.resume else None
    if run and (run.folder / "config.json").is_file():
        default = of_run(run, choice)
    else:
        default = of_recipe(choice, announced=len(asked) == len(arguments))
    refuse_variants_of_others(arguments, default.method)
    return tyro.cli(
        tyro.conf.AvoidSubcommands[tyro.conf.OmitArgPrefixes[Pretrain]],
        args=arguments,
        default=default,
        prog=PROGRAM,
    )


def refuse_unknown(arguments: Sequence[str]) -> None:
    """Raise SettingError for a method or a recipe of no known name, of which the parser would make a box."""
    known = {"method": set(METHODS), "recipe": {name for there in RECIPES.values() for name in there}}
    for word, following in zip(arguments, [*arguments[1:], ""], strict=True):
        option, _, value = word.partition("=")
        names = known.get(option.removeprefix("--"), set()) if option.startswith("--") else set()
        if names and (value or following) not in names:
            raise SettingError(f"{option} is {value or following!r}, expected {' or '.join(sorted(names))}")


def refuse_variants_of_others(arguments: Sequence[str], method: str) -> None:
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


def of_recipe(choice: Peek, *, announced: bool) -> Pretrain:
    """The options of a run that begins, with the chosen recipe; its reasons are printed where `announced`."""
    name, make = recipes.find(choice.method, choice.recipe)
    given = {"epochs": choice.epochs, "batch_size": choice.batch_size}
    if name not in recipes.FROM_PICTURES:
        advice = make()
    else:
        pictures = _pictures(choice) if announced else recipes.NOMINAL
        advice = make(*pictures, **{name: value for name, value in given.items() if value is not None})
    if announced and os.environ.get("RANK", "0") == "0":
        print(f"recipe {name}, before other options change it:", *advice.reasons, sep="\n  ")
    settings = advice.recipe
    if choice.global_size is not None and choice.image_size is None:
        backbone = dataclasses.replace(settings.backbone, image_size=choice.global_size)
        settings = dataclasses.replace(settings, backbone=backbone)
    chosen = {f.name: getattr(choice, f.name) for f in dataclasses.fields(Choice)}
    return Pretrain(**chosen | {"recipe": name, "settings": settings})


def of_run(run: Run, choice: Peek) -> Pretrain:
    """The options of a run that goes on: its own.

    Raises:
        RunError: another method or recipe is asked for.
    """
    config = run.config()
    name = config.get("method")
    if name not in METHODS:
        raise RunError(f"{run.folder} was trained with {name!r}, which this version does not know")
    options = config.get("options", {})
    init = config.get("init", {})
    begun = options.get("recipe")
    if choice.recipe and begun and choice.recipe != begun:
        raise RunError(f"{run.folder} was begun with --recipe {begun}: pass no other to resume it")
    return Pretrain(
        data=_sources(options.get("data")),
        output=choice.output,
        resume=run.folder,
        method=name,
        recipe=choice.recipe or begun,
        exclude=_path(options.get("exclude")),
        init_from=_path(init.get("from")),
        init_backbone=init.get("backbone"),
        seed=config.get("seed", 0),
        precision=config.get("precision", "auto"),
        accumulate=options.get("accumulate", 1),
        settings=recipe_of(config),
    )


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


def _pictures(choice: Choice) -> tuple[int, int]:
    """How many pictures there are, and the short side of a typical one."""
    if not choice.data:
        raise SettingError("which pictures? Pass --data: the recipe is made for them")
    images = open_images(choice.data, exclude=choice.exclude)
    return len(images), recipes.typical_short_side(sampled_sizes(images))


def _names(arguments: Sequence[str], option: str) -> bool:
    return any(word.partition("=")[0] == option for word in arguments)


def _with_folder(arguments: list[str]) -> list[str]:
    """`--resume` without a folder means the one of --output; a worker that torchrun restarts resumes."""
    if os.environ.get("TORCHELASTIC_RESTART_COUNT", "0") != "0" and not _names(arguments, "--resume"):
        arguments = [*arguments, "--resume"]
    for i, word in enumerate(arguments):
        if word == "--resume" and (i + 1 == len(arguments) or arguments[i + 1].startswith("-")):
            output, _ = tyro.cli(Peek, args=arguments[:i] + arguments[i + 1 :], return_unknown_args=True)
            if output.output is not None:
                return [*arguments[: i + 1], str(output.output), *arguments[i + 1 :]]
    return arguments


def _sources(told: str | list[str] | None) -> tuple[str, ...]:
    return (told,) if isinstance(told, str) else tuple(told or ())


def _path(name: str | None) -> Path | None:
    return None if name is None else Path(name)
