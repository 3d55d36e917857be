"""`python -m training pretrain`: pictures in, a run's folder out."""

import dataclasses
import platform
import signal
import sys
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress
from dataclasses import asdict, dataclass, field
from importlib.metadata import version
from pathlib import Path
from typing import Any

import tyro

from dino_model.device import Precision, choose_device, choose_precision
from dino_model.errors import SettingError
from dino_model.head import HeadConfig
from dino_model.images import ImageError, Images, open_images
from dino_model.weights import is_path
from training import recipes
from training.checkpoint import Run, RunError
from training.doctor import facts
from training.loop import Diverged
from training.monitor import Monitor, Probe, Progress
from training.recipes import METHODS, MethodName, Recipe, RecipeName
from training.session import Session
from training.settings import at_least, restored

PROGRAM = "python -m training pretrain"
EXIT_CODES = {signal.SIGTERM: 75, signal.SIGINT: 130}
"""Of a run that was stopped before its end: EX_TEMPFAIL, after which queues begin again; and Ctrl-C's."""


@dataclass(frozen=True)
class Choice:
    """What has to be known before the recipe's settings can be shown or changed."""

    data: Path | None = None
    """Pictures: a folder (flat or nested, labelled or not), an uncompressed tar or a text file of paths."""
    output: Path | None = None
    """Folder of the run: configuration, checkpoints and log."""
    resume: Path | None = None
    """Go on with the run in this folder, with its own settings but for those named here; begin it where there
    is none yet. Without a folder: the one of --output."""
    method: MethodName = "dino"
    """How to learn."""
    recipe: RecipeName | None = None
    """Where the settings below start from; left out: the method's first."""
    exclude: Path | None = None
    """Text file with names of pictures to leave out, one a line."""


@dataclass(frozen=True)
class Peek(Choice):
    """A first look at the command line: what the recipe is derived from."""

    epochs: int | None = None
    batch_size: int | None = None
    global_size: int | None = None
    image_size: int | None = None


@dataclass(frozen=True)
class Pretrain(Choice):
    """Train a backbone without labels (or, to compare, with them)."""

    init_from: Path | None = None
    """Start from the weights of another run or checkpoint; nothing else of it is taken."""
    init_backbone: str | None = None
    """Start from the backbone of any model, by the names that --model takes elsewhere; the head is fresh."""
    seed: int = 0
    """Of weights, data order, crops and stochastic depth."""
    workers: int = 2
    """Processes that cut crops; 0: none but this one."""
    device: str = "auto"
    """auto, cpu, mps or cuda."""
    precision: Precision = "auto"
    """auto is bf16 where the hardware has it, else fp32; the loss is always fp32."""
    accumulate: int = 1
    """Parts that a batch is split into, one after the other, for little memory; the result is the same."""
    save_every: int = 200
    """Steps between checkpoints."""
    milestone_every: int = 5000
    """Steps between checkpoints that are kept."""
    probe_every: int = 1000
    """Steps between k-NN probes of every network on labelled pictures; 0 for none."""
    settings: Recipe = field(default_factory=Recipe)
    """The recipe's settings."""

    def run(self) -> int:
        """Check, build, train; returns the exit code."""
        check_options(self)
        run = Run(_folder(self))
        device = choose_device(self.device)
        precision = choose_precision(self.precision, device)
        assert self.data is not None
        images = open_images(self.data, exclude=self.exclude)
        session = Session(
            self.settings,
            images,
            seed=self.seed,
            device=device,
            precision=precision,
            workers=self.workers,
            accumulate=self.accumulate,
        )
        done = (
            resume(self, session, run)
            if self.resume and run.checkpoint.exists()
            else begin(self, session, run)
        )
        return train(self, session, run, done)


def begin(options: Pretrain, session: Session, run: Run) -> int:
    """Write the run's configuration; returns the steps done, none."""
    step = session.start_from(options.init_from, options.init_backbone)
    if options.init_from:
        print(f"weights of {options.init_from}, step {step}")
    if options.init_backbone:
        print(f"backbone of {options.init_backbone}, a fresh head")
    run.create(session.config() | circumstances(options))
    return 0


def resume(options: Pretrain, session: Session, run: Run) -> int:
    """Take the run's state, note in its configuration what changes from here on; returns the steps done.

    Raises:
        RunError: settings that the state does not fit.
    """
    before, now = run.config(), session.config()
    stored = dataclasses.asdict(recipe_of(before))
    changed = differences(stored, asdict(session.recipe)) | differences(
        {"precision": before["precision"]}, {"precision": now["precision"]}
    )
    fixed = {name: change for name, change in changed.items() if _is_fixed(name)}
    if fixed:
        raise RunError(f"cannot resume {run.folder} with other settings: {_in_words(fixed)}; pass its own")
    for name, given in _start(options).items():
        if given not in (None, (before.get("init") or {}).get(name, given)):
            raise RunError(f"{run.folder} has begun already: leave --init-{name} out")
    done = session.resume(run)
    print(f"{run.folder}: going on at step {done} of {session.plan.steps}")
    if changed:
        print(f"from here on {_in_words(changed)}")
    if changed or before.get("data") is None:  # of the first format
        history = [*before.get("changes", []), *([{"step": done, "changed": changed}] if changed else [])]
        kept = {name: before[name] for name in ("command", "versions", "init") if name in before}
        run.rewrite(now | circumstances(options) | kept | {"changes": history})
    return done


def train(options: Pretrain, session: Session, run: Run, first_step: int) -> int:
    """Train to the end, or until told to stop; returns the exit code.

    Raises:
        RunError: the loss diverged; the newest checkpoint is from before.
    """
    recipe, steps, precision = session.recipe, session.plan.steps, session.arithmetic.precision
    print(
        f"{len(session.images):,} pictures, {steps:,} steps of {recipe.batch_size} "
        f"in {recipe.epochs} epochs, {session.device.type}, {precision}, {recipe.method.name}"
    )
    monitor = watch(options, session, first_step)
    try:
        with stop_signal() as received:
            done = session.train(
                run,
                first_step,
                save_every=options.save_every,
                milestone_every=options.milestone_every,
                observe=monitor,
                interrupted=lambda: bool(received),
            )
    except Diverged as error:
        remedy = "" if precision == "fp32" else " or --precision fp32"
        raise RunError(
            f"{error}: {run.checkpoint} is from before; go on from it with "
            f"--resume {run.folder} and a lower --lr{remedy}"
        ) from None
    finally:
        monitor.progress.end()
    if monitor.broken:
        print(f"{len(monitor.broken)} unreadable pictures were skipped")
    goes_on = f", --resume {run.folder} goes on" if done < steps else ""
    print(f"{run.folder}: {done:,} of {steps:,} steps done{goes_on}")
    return EXIT_CODES[received[0]] if done < steps and received else 0


def watch(options: Pretrain, session: Session, first_step: int) -> Monitor:
    """What watches the run."""
    every, recipe, images = options.probe_every, session.recipe, session.images
    probe = None
    if every and (images.labels is None or len(images) < 10):
        print("no k-NN probe: it needs 10 pictures or more, in a folder for each class")
    elif every:
        size, precision = recipe.crops.global_size, session.arithmetic.precision
        probe = Probe(images, size, recipe.mean, recipe.std, precision, session.device)
    progress = Progress(first_step, session.plan.steps, recipe.batch_size)
    return Monitor(progress, session.method, probe, every, facts(session.config()))


@contextmanager
def stop_signal() -> Iterator[list[signal.Signals]]:
    """What asks to stop after the step at hand: Ctrl-C or SIGTERM; a second Ctrl-C stops at once."""
    received: list[signal.Signals] = []

    def note(number: int, _frame: object) -> None:
        received.append(signal.Signals(number))
        signal.signal(signal.SIGINT, signal.default_int_handler)

    former = {number: signal.signal(number, note) for number in EXIT_CODES}
    try:
        yield received
    finally:
        for number, handler in former.items():
            signal.signal(number, handler)


# --- the command line


def parse(arguments: Sequence[str]) -> Pretrain:
    """The command line; the defaults of the settings are the chosen recipe's or the resumed run's."""
    arguments = _with_folder(list(arguments))
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
    if announced:
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
        data=_path(options.get("data")),
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


def recipe_of(config: dict[str, Any]) -> Recipe:
    """The recipe in a run's configuration; settings younger than the run get their defaults."""
    return restored(Recipe(method=METHODS[config["method"]]()), config["recipe"])


def circumstances(options: Pretrain) -> dict[str, Any]:
    """What else a run's configuration tells: enough to begin it again."""
    packages = ("torch", "torchvision", "timm")
    return {
        "options": {
            "data": _absolute(options.data),
            "exclude": _absolute(options.exclude),
            "recipe": options.recipe,
            "accumulate": options.accumulate,
        },
        "init": _start(options),
        "command": sys.argv,
        "versions": {"python": platform.python_version()} | {name: version(name) for name in packages},
    }


def check_options(options: Pretrain) -> None:
    """Raise SettingError for options that cannot be, naming the option."""
    if options.init_from and options.init_backbone:
        raise SettingError("--init-from and --init-backbone both name where to start: choose one")
    trained = options.settings.method.name
    if options.method != trained:
        raise SettingError(
            f"--method is {options.method}, but the run was begun with {trained}: leave it out"
        )
    if options.data is None:
        raise SettingError(
            "which pictures? Pass --data with a folder, an uncompressed tar or a list of paths"
        )
    at_least(options, save_every=1, milestone_every=1, probe_every=0, workers=0)


def differences(old: dict[str, Any], new: dict[str, Any], prefix: str = "") -> dict[str, tuple[Any, Any]]:
    """Settings that differ, by their names with dots: before and after."""
    found: dict[str, tuple[Any, Any]] = {}
    for key in sorted({*old, *new}):
        before, after = old.get(key), new.get(key)
        if isinstance(before, dict) and isinstance(after, dict):
            found |= differences(before, after, f"{prefix}{key}.")
        elif before != after:
            found[prefix + key] = (before, after)
    return found


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
    if choice.data is None:
        raise SettingError("which pictures? Pass --data: the recipe is made for them")
    images = open_images(choice.data, exclude=choice.exclude)
    return len(images), recipes.typical_short_side(sampled_sizes(images))


def _with_folder(arguments: list[str]) -> list[str]:
    """`--resume` without a folder means the one of --output."""
    for i, word in enumerate(arguments):
        if word == "--resume" and (i + 1 == len(arguments) or arguments[i + 1].startswith("-")):
            output, _ = tyro.cli(Peek, args=arguments[:i] + arguments[i + 1 :], return_unknown_args=True)
            if output.output is not None:
                return [*arguments[: i + 1], str(output.output), *arguments[i + 1 :]]
    return arguments


def _folder(options: Pretrain) -> Path:
    """Where the run is.

    Raises:
        SettingError: none is named, or two.
    """
    if options.resume and options.output and options.resume.resolve() != options.output.resolve():
        raise SettingError(f"--resume {options.resume} goes on in its own folder: leave --output out")
    folder = options.resume or options.output
    if folder is None:
        raise SettingError("where to? Pass --output with the folder of the run")
    return folder


def _start(options: Pretrain) -> dict[str, str | None]:
    name = options.init_backbone
    return {
        "from": _absolute(options.init_from),
        "backbone": _absolute(Path(name)) if name and is_path(name) else name,
    }


def _is_fixed(name: str) -> bool:
    """Whether the state of a run fits no other value of a setting, or would silently mean something else."""
    fixed = (
        "backbone.",
        "method.head.",
        "method.predictor",
        "method.queue",
        "optimizer.name",
        "batch_size",
        "mean",
        "std",
    )
    return name.startswith(fixed) and name != "backbone.drop_path"


def _in_words(changes: dict[str, tuple[Any, Any]]) -> str:
    return ", ".join(f"{name} was {before}, now {after}" for name, (before, after) in changes.items())


def _absolute(path: Path | None) -> str | None:
    return None if path is None else str(path.resolve())


def _path(name: str | None) -> Path | None:
    return None if name is None else Path(name)
