"""The form of every command that works through items and writes a folder."""

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, ClassVar, Generic, Protocol, TypeVar

from dino_model.runtime.ahead import load_ahead
from dino_model.runtime.files import make_room
from dino_model.runtime.outputs import (
    JsonOptions,
    OutputFolder,
    OutputOptions,
    SkippedInputs,
    check_output_folder,
)
from dino_model.runtime.progress import progress


class Item(Protocol):
    """A unit of work: an image, a sequence, a pair of images."""

    @property
    def name(self) -> str:
        """Name in messages and in the log of finished items, unique."""

    @property
    def files(self) -> Sequence[Path]:
        """Files whose change makes the results outdated."""


@dataclass(frozen=True)
class Inputs:
    """An item that is read from several files."""

    name: str
    files: Sequence[Path]


ItemT = TypeVar("ItemT", bound=Item)
Loaded = TypeVar("Loaded")


def read_ahead(
    items: Sequence[ItemT], read: Callable[[ItemT], Loaded], skipped: SkippedInputs, title: str
) -> Iterator[tuple[ItemT, Loaded]]:
    """Iterate over the items that can be read, with a progress line `title`; the others go to `skipped`.

    `read` is called in one of several threads; its ValueError says why an item cannot be used.
    """

    def attempt(item: ItemT) -> Loaded | ValueError:
        try:
            return read(item)
        except ValueError as error:
            return error

    pairs = zip(items, load_ahead(attempt, items), strict=True)
    for item, loaded in progress(pairs, title, len(items)):
        if isinstance(loaded, ValueError):
            skipped.add(item.name, loaded)
        else:
            yield item, loaded


@dataclass(frozen=True, kw_only=True)
class BatchCommand(OutputOptions, JsonOptions, Generic[ItemT, Loaded]):
    """Options of a batch command. Its methods are called in the order in which they are listed here.

    An item is skipped and named if `read` or `compute` raises ValueError. The exit code is then 1, after all
    other items are finished. Nothing is written before the first item is computed.
    """

    kind: ClassVar[str] = "images"
    """Plural noun of the items."""

    def items(self) -> Sequence[ItemT]:
        """Check the options, and list what is to be done."""
        raise NotImplementedError

    def settings(self) -> Mapping[str, Any]:
        """Load the model, and return everything that the results depend on, apart from the input files."""
        raise NotImplementedError

    def read(self, item: ItemT) -> Loaded:
        """Read an item, in one of several threads."""
        raise NotImplementedError

    def compute(self, item: ItemT, loaded: Loaded, output: OutputFolder) -> Any:
        """Compute an item and write its files; return its record, a JSON value."""
        raise NotImplementedError

    def finish(self, items: Sequence[ItemT], output: OutputFolder) -> Mapping[str, Any]:
        """Write and print what needs all usable items; return the results for --json."""
        raise NotImplementedError

    def run(self) -> None:
        """Work through the items that are not finished, then write what needs all of them."""
        make_room(self.json)
        check_output_folder(self.output, overwrite=self.overwrite, resume=self.resume)
        items = self.items()
        output = self.open_output(self.settings())
        usable = {item.name for item in items if output.has(item.name, item.files)}
        if usable:
            print(f"finished before: {len(usable)} of {len(items)} {self.kind}", flush=True)
        else:
            output.start_over()
        todo = [item for item in items if item.name not in usable]
        for item, loaded in read_ahead(todo, self.read, output.skipped, self.kind * (len(todo) > 1)):
            try:
                record = self.compute(item, loaded, output)
            except ValueError as error:
                output.discard()
                output.skipped.add(item.name, error)
            else:
                output.add(item.name, record, inputs=item.files)
                usable.add(item.name)
        if not usable:
            output.skipped.check(len(items), self.kind)
        results = self.finish([item for item in items if item.name in usable], output)
        output.finish()
        print(f"written to {self.output}")
        self.save(results)
        output.skipped.check(len(items), self.kind)
