"""`python -m training pretrain`: train on images, write a run's folder."""

import os
import signal
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager, nullcontext
from pathlib import Path
from typing import Any

import torch

from dino_model.data.classes import LabelOptions
from dino_model.data.collection import is_named, open_images
from dino_model.models.catalogue import is_path
from dino_model.runtime import outputs
from dino_model.runtime.device import choose_device, choose_precision
from dino_model.runtime.errors import LostRank, pluralize
from dino_model.runtime.outputs import (
    EXIT_INTERRUPTED,
    EXIT_SIGTERM,
    PROVENANCE,
    STOP_SIGNALS,
    write_provenance,
)
from dino_model.runtime.progress import progress
from dino_model.runtime.ranks import LISTING_LIMIT, on_first, process_group, rank, world
from training import initialize
from training.commands.arguments import Pretrain
from training.prepare import check_ranks
from training.run.doctor import run_settings
from training.run.folder import Run, RunError
from training.run.logging import LOGGERS, Diverged
from training.run.monitor import Monitor, Probe
from training.session import Session, in_words
from training.train import Callbacks

EXIT_CODES = {**dict.fromkeys(STOP_SIGNALS, EXIT_SIGTERM), signal.SIGINT: EXIT_INTERRUPTED}


def run(options: Pretrain) -> int:
    """Build the session of checked options and train; return the exit code."""
    try:
        with process_group(choose_device(options.device)) as device:
            return _run(options, options.run, device)
    except LostRank as error:
        raise LostRank(f"{error}; --resume continues {options.output} from the last checkpoint") from None


def _run(options: Pretrain, run: Run, device: torch.device) -> int:
    resumed = options.resume and run.checkpoint.exists()  # before any rank writes one
    settings = options.settings
    check_ranks("--data", str(options.data))
    arrays = bool(settings.low)
    images = on_first(
        lambda: open_images(options.data, exclude=options.exclude, arrays=arrays, options=options),
        LISTING_LIMIT,
    )
    session = Session(
        settings,
        images.require_classes() if settings.method.uses_labels else images,
        seed=options.seed,
        device=device,
        precision=choose_precision(options.precision, device),
        workers=default_workers(device) if options.workers is None else options.workers,
        accumulate=options.accumulate,
        checkpoint_activations=options.checkpoint_activations,
        compile=options.compile,
        cuda_graph=options.cuda_graph,
    )
    with run.lock() if rank() == 0 else nullcontext():
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
    """Load initial weights and write the run's configuration; return the steps done, 0."""
    if options.init_from:
        print(initialize.from_checkpoint(session.method, session.recipe, options.init_from))
    if options.init_backbone:
        initialize.from_backbone(session.method, session.recipe, options.init_backbone)
        print(f"backbone of {options.init_backbone}, a fresh head")
    if rank() == 0:
        run.create(session.config() | start_entries(options), session.named_sizes())
        write_provenance(run.folder / PROVENANCE, session.config(), reading=str(session.images))
    return 0


def resume(options: Pretrain, session: Session, run: Run) -> int:
    """Load the run's state and record changed settings in its configuration; return the steps done."""
    accept = {"accept_data_change": options.accept_data_change}
    before, changed = run.config(), session.changes(run, **accept)
    for name, given in _start(options).items():
        if given not in (None, before.get("init", {}).get(name)):
            raise RunError(f"{run.folder} has begun already: leave --init-{name} out")
    done = session.resume(run, **accept)
    print(f"{run.folder}: resumed at step {done} of {session.plan.steps}")
    if changed:
        print(f"changed settings: {in_words(changed)}")
    if rank() == 0 and (missing := done - len({line["step"] for line in run.lines()})):
        print(f"{run.log} lacks {pluralize(missing, 'step')} before it: charts and doctor leave them out")
    if rank() == 0 and changed:
        history = [*before.get("changes", []), {"step": done, "changed": changed}]
        if "data" in changed:
            history[-1]["images"] = run.describe_changed_images(session.named_sizes())
            print(f"images: {history[-1]['images']}")
            run.write_images(session.named_sizes())
        first = {name: before[name] for name in ("command", "versions", "init") if name in before}
        run.rewrite(session.config() | start_entries(options) | first | {"changes": history})
    return done


def train(options: Pretrain, session: Session, run: Run, first_step: int) -> int:
    """Train to the end, or until a signal; return the exit code.

    Raises:
        RunError: The loss diverged; the newest checkpoint is from before.
    """
    recipe, steps, precision = session.recipe, session.plan.steps, session.precision
    print(session.images)
    numbers = Counter(session.images.splits or ())
    if numbers["train"] and (tested := numbers["val"] + numbers["test"]):
        print(
            f"warning: trains on {pluralize(tested, 'image')} of val and test, too: leave them out of --data"
        )
    print(
        f"{pluralize(len(session.images), 'image')}, {pluralize(steps, 'step')} of {recipe.batch_size} "
        f"in {pluralize(recipe.epochs, 'epoch')}, {session.device.type}, {precision}, {recipe.method.title()}"
        + (f", {world()} processes" if world() > 1 else "")
        + (", crops of all sizes in one pass" if session.one_pass else ", a pass for each size of crops")
    )
    session.method.prepare(print if rank() == 0 else lambda _: None)
    monitor = create_monitor(options, session, first_step)
    names = dict.fromkeys(options.log if rank() == 0 else ())
    try:
        with stop_signal() as received:
            callbacks = Callbacks(
                checkpoints=options.checkpoints,
                loggers=[LOGGERS[name](run, session.config(), first_step) for name in names],
                observe=monitor,
                eval_hook=monitor.evaluate,
                interrupted=lambda: bool(received),
            )
            done = session.train(run, first_step, callbacks)
    except Diverged as error:
        remedy = "" if precision == "fp32" else " or --precision fp32"
        raise RunError(
            f"{error}: {run.checkpoint} is from before; continue with --resume and a lower --lr{remedy}"
        ) from None
    finally:
        monitor.progress.close()
    if monitor.broken:
        print(f"skipped {pluralize(len(monitor.broken), 'unreadable image')}")
    left = "" if done == steps else ", --resume continues"
    print(f"{run.folder}: {done:,} of {steps:,} steps done{left}")
    if done == steps:
        return 0
    return EXIT_CODES[received[0] if received else signal.SIGTERM]  # without: another rank was stopped


def create_monitor(options: Pretrain, session: Session, first_step: int) -> Monitor:
    """Progress, probe and diagnosis of the run."""
    every, recipe = options.probe_every, session.recipe
    labeled = session.images.require_classes() if every and session.images.labels is not None else None
    probe = None
    if labeled and len(labeled.classes) > 1 and len(labeled) >= 10:
        probe = Probe(labeled, recipe, session.precision, session.device)
    elif every:
        reason = f" ({session.images.no_classes})" if session.images.no_classes else ""
        print(f"no k-NN probe: it needs 10 images or more, in a folder for each class{reason}")
    bar = progress((), "steps", session.plan.steps, done=first_step)
    return Monitor(bar, session.method, probe, every, run_settings(session.config()))


@contextmanager
def stop_signal() -> Iterator[list[signal.Signals]]:
    """Record Ctrl-C, SIGTERM or SIGUSR1, to stop after the current step; a second Ctrl-C stops at once."""
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


def start_entries(options: Pretrain) -> dict[str, Any]:
    """Entries of a run's configuration that are needed to start it again."""
    sources = [source if is_named(source) else _absolute(source) for source in options.data]
    return {
        "options": {
            "data": sources,
            "exclude": options.exclude and _absolute(options.exclude),
            "label_options": _label_options(options),
            "recipe": options.recipe,
            "accumulate": options.accumulate,
        },
        "init": _start(options),
        "processes": world(),
        **outputs.run_metadata(),
    }


def _label_options(options: Pretrain) -> dict[str, Any]:
    """Options of labels that are not the default; the table by its absolute path."""
    given, default = vars(options.label_options()), vars(LabelOptions())
    chosen = {name: value for name, value in given.items() if value != default[name]}
    return chosen | ({"labels": _absolute(options.labels)} if options.labels else {})


def _start(options: Pretrain) -> dict[str, str | None]:
    source, name = options.init_from, options.init_backbone
    return {
        "from": _absolute(source) if source else None,
        "backbone": _absolute(name) if name and is_path(name) else name,
    }


def _absolute(path: str | Path) -> str:
    return str(Path(path).resolve())
