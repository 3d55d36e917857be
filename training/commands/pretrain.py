"""`python -m training pretrain`: pictures in, a run's folder out."""

import dataclasses
import platform
import signal
import sys
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, nullcontext
from dataclasses import asdict, dataclass, field
from importlib.metadata import version
from pathlib import Path
from typing import Any

import torch

from dino_model.device import Precision, choose_device, choose_precision
from dino_model.errors import SettingError
from dino_model.images import open_images
from dino_model.remote import is_remote
from dino_model.weights import is_path
from training.checkpoint import Run, RunError
from training.distributed import LostRank, joined, rank, world
from training.doctor import facts
from training.loggers import LOGGERS, LoggerName, check_loggers
from training.logs import Diverged, Logger
from training.loop import Watch
from training.monitor import Monitor, Probe, Progress
from training.recipes import MethodName, Recipe, RecipeName, recipe_of
from training.session import Session
from training.settings import at_least

PROGRAM = "python -m training pretrain"
EXIT_CODES = {signal.SIGTERM: 75, signal.SIGINT: 130}
"""Of a run that was stopped before its end: EX_TEMPFAIL, after which queues begin again; and Ctrl-C's."""


@dataclass(frozen=True)
class Choice:
    """What has to be known before the recipe's settings can be shown or changed."""

    data: tuple[str, ...] = ()
    """Pictures: a folder (flat or nested, labelled or not), an uncompressed tar, several ('train/*.tar',
    'shard-{000..127}.tar', 's3://…'), a text file of paths (of pictures or tars), or several of these."""
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
    checkpoint_activations: bool = False
    """Keep only the input of every block and compute it again for the gradients: slower, for little memory;
    the result is the same."""
    compile: bool = False
    """Let torch.compile make one function of every block: minutes at the start, for long runs on a GPU."""
    save_every: int = 200
    """Steps between checkpoints."""
    milestone_every: int = 5000
    """Steps between checkpoints that are kept."""
    keep: int = 0
    """Newest of these that stay; 0: all."""
    probe_every: int = 1000
    """Steps between k-NN probes of every network on labelled pictures; 0 for none."""
    log: tuple[LoggerName, ...] = ()
    """Where else to log: tensorboard, wandb, or both, where they are installed."""
    settings: Recipe = field(default_factory=Recipe)
    """The recipe's settings."""

    def run(self) -> int:
        """Check, build, train; returns the exit code."""
        check_options(self)
        run = Run(_folder(self))
        try:
            with joined(choose_device(self.device)) as device:
                return self._run(run, device)
        except LostRank as error:
            if "--resume" in str(error):
                raise
            raise LostRank(f"{error}; --resume {run.folder} goes on from the last checkpoint") from None

    def _run(self, run: Run, device: torch.device) -> int:
        resumed = self.resume is not None and run.checkpoint.exists()
        precision = choose_precision(self.precision, device)
        images = open_images(self.data, exclude=self.exclude)
        session = Session(
            self.settings,
            images,
            seed=self.seed,
            device=device,
            precision=precision,
            workers=self.workers,
            accumulate=self.accumulate,
            checkpoint_activations=self.checkpoint_activations,
            compile=self.compile,
        )
        with run.held() if rank() == 0 else nullcontext():
            done = resume(self, session, run) if resumed else begin(self, session, run)
            return train(self, session, run, done)


def begin(options: Pretrain, session: Session, run: Run) -> int:
    """Write the run's configuration; returns the steps done, none."""
    step = session.start_from(options.init_from, options.init_backbone)
    if options.init_from:
        print(f"weights of {options.init_from}, step {step}")
    if options.init_backbone:
        print(f"backbone of {options.init_backbone}, a fresh head")
    if rank() == 0:
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
    if rank() == 0 and (changed or before.get("data") is None):  # of the first format
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
        + (f", {world()} processes" if world() > 1 else "")
    )
    monitor = watch(options, session, first_step)
    try:
        with stop_signal() as received:
            done = session.train(
                run,
                first_step,
                Watch(
                    options.save_every,
                    options.milestone_every,
                    options.keep,
                    loggers(options, session, run, first_step),
                    observe=monitor,
                    look=monitor.look,
                    interrupted=lambda: bool(received),
                ),
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
    if done == steps:
        return 0
    return EXIT_CODES[received[0] if received else signal.SIGTERM]  # where another rank was told to stop


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


def loggers(options: Pretrain, session: Session, run: Run, first_step: int) -> list[Logger]:
    """Where else the first process logs.

    Raises:
        SettingError: one that does not begin.
    """
    names = options.log if rank() == 0 else ()
    return [LOGGERS[name](run, session.config(), first_step) for name in dict.fromkeys(names)]


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


def circumstances(options: Pretrain) -> dict[str, Any]:
    """What else a run's configuration tells: enough to begin it again."""
    packages = ("torch", "torchvision", "timm")
    return {
        "options": {
            "data": _told(options.data),
            "exclude": _absolute(options.exclude),
            "recipe": options.recipe,
            "accumulate": options.accumulate,
        },
        "init": _start(options),
        "processes": world(),
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
    if not options.data:
        raise SettingError(
            "which pictures? Pass --data with a folder, an uncompressed tar or a list of paths"
        )
    check_loggers(options.log)
    at_least(options, save_every=1, milestone_every=1, probe_every=0, workers=0, keep=0)


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


def _told(sources: Sequence[str]) -> str | list[str]:
    """Where the pictures are, from wherever it is read."""
    found = [source if is_remote(source) else str(Path(source).resolve()) for source in sources]
    return found[0] if len(found) == 1 else found


def _absolute(path: Path | None) -> str | None:
    return None if path is None else str(path.resolve())
