"""`python -m training pretrain`: pictures in, a run's folder out."""

import dataclasses
import os
import platform
import signal
import sys
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, nullcontext
from dataclasses import asdict
from importlib.metadata import version
from pathlib import Path
from typing import Any

import torch

from dino_model.collections import open_images
from dino_model.device import choose_device, choose_precision
from dino_model.outputs import PROVENANCE, write_provenance
from dino_model.remote import is_remote
from dino_model.weights import is_path
from training.commands.arguments import Pretrain
from training.distributed import LostRank, joined, rank, world
from training.doctor import facts
from training.loggers import LOGGERS
from training.logging import Diverged, Logger
from training.monitor import Monitor, Probe, Progress
from training.recipe import recipe_of
from training.run import Run, RunError
from training.session import Session, check_batch
from training.train import Callbacks

EXIT_CODES = {signal.SIGTERM: 75, signal.SIGINT: 130}
"""Of a run that was stopped before its end: EX_TEMPFAIL, after which queues begin again; and Ctrl-C's."""


def run(options: Pretrain) -> int:
    """Build the session of checked options and train; return the exit code."""
    device = choose_device(options.device)
    folder = Run(options.folder)
    try:
        with joined(device) as own_device:
            return _run(options, folder, own_device)
    except LostRank as error:
        if "--resume" in str(error):
            raise
        raise LostRank(f"{error}; --resume {folder.folder} continues from the last checkpoint") from None


def _run(options: Pretrain, run: Run, device: torch.device) -> int:
    check_batch(options.settings, options.accumulate)
    resumed = options.resume is not None and run.checkpoint.exists()
    images = open_images(options.data, exclude=options.exclude)
    session = Session(
        options.settings,
        images,
        seed=options.seed,
        device=device,
        precision=choose_precision(options.precision, device),
        workers=default_workers(device) if options.workers is None else options.workers,
        accumulate=options.accumulate,
        checkpoint_activations=options.checkpoint_activations,
        compile=options.compile,
    )
    with run.held() if rank() == 0 else nullcontext():
        if options.overwrite and rank() == 0:
            run.remove()
        done = resume(options, session, run) if resumed else begin(options, session, run)
        return train(options, session, run, done)


def default_workers(device: torch.device) -> int:
    """Number of loading processes: with CUDA the cores of this process over the processes of this machine."""
    cores = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1
    if device.type != "cuda":
        return min(2, cores)
    return max(1, cores // int(os.environ.get("LOCAL_WORLD_SIZE", "1")))


def begin(options: Pretrain, session: Session, run: Run) -> int:
    """Write the run's configuration; returns the steps done, none."""
    step = session.start_from(options.init_from, options.init_backbone)
    if options.init_from:
        print(f"weights of {options.init_from}, step {step}")
    if options.init_backbone:
        print(f"backbone of {options.init_backbone}, a fresh head")
    if rank() == 0:
        run.create(session.config() | circumstances(options))
        write_provenance(run.folder / PROVENANCE, session.config())
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
    if rank() == 0 and changed:
        history = [*before.get("changes", []), {"step": done, "changed": changed}]
        kept = {name: before[name] for name in ("command", "versions", "init") if name in before}
        run.rewrite(now | circumstances(options) | kept | {"changes": history})
    return done


def train(options: Pretrain, session: Session, run: Run, first_step: int) -> int:
    """Train to the end, or until told to stop; returns the exit code.

    Raises:
        RunError: the loss diverged; the newest checkpoint is from before.
    """
    recipe, steps, precision = session.recipe, session.plan.steps, session.compute.precision
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
                Callbacks(
                    save_every=options.save_every,
                    save_minutes=options.save_minutes,
                    milestone_every=options.milestone_every,
                    keep=options.keep,
                    loggers=loggers(options, session, run, first_step),
                    observe=monitor,
                    eval_hook=monitor.evaluate,
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
        size, precision = recipe.crops.global_size, session.compute.precision
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
