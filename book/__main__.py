"""`python -m book`: the site, and the map of the paper."""

import sys
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import tyro

from book import paper_map
from book.site import Site
from dino_model.errors import EXPECTED, sentence


@dataclass(frozen=True)
class WriteMap:
    """Write docs/paper-map.md anew from docs/paper-map.toml."""

    def run(self) -> None:
        """Write it, say where."""
        print(paper_map.write())


def main(arguments: Sequence[str] | None = None) -> None:
    """The commands; what was wrong is told in one sentence with exit code 1."""
    try:
        commands: dict[str, Callable[..., Any]] = {"site": Site, "map": WriteMap}
        tyro.extras.subcommand_cli_from_dict(commands, prog="python -m book", args=arguments).run()
    except EXPECTED as error:
        sys.exit(f"error: {sentence(error)}")


if __name__ == "__main__":
    main()
