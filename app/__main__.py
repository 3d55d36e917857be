"""`python -m app`: the attention lab in the browser."""

import sys
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Annotated, Literal

import tyro

from app.limits import Limits
from dino_model.errors import EXPECTED, sentence
from dino_model.threads import set_passive_omp


@dataclass(frozen=True)
class Serve:
    """Open the attention lab in the browser: a photograph, and where every head of a ViT looks."""

    host: str = "127.0.0.1"
    """Address to listen on. Any other than this one shows the page to other machines."""
    port: int = 7860
    """Port to listen on; when it is taken, the next free one is, and said."""
    model: str = "embedded"
    """Model the page opens with; `python -m dino_model list` tells the names."""
    models_dir: Path | None = None
    """Folder of checkpoints, training runs and class maps that visitors may choose from, by name."""
    size: int = 224
    """Resolution the page opens with: pixels of the short side."""
    precision: Literal["auto", "fp32", "bf16"] = "auto"
    """Arithmetic of the model; auto is bf16 where the hardware has it."""
    device: str = "auto"
    """Where the model runs: auto, cpu, cuda or mps."""
    allowed_hosts: tuple[str, ...] = ()
    """Names, beside --host and localhost, under which visitors may reach the page."""
    auth: Path | None = None
    """File with a line USER:PASSWORD for each who may see the page; or set DINO_LAB_AUTH to such a line. No
    option takes the password itself: every user of this machine could read it in the list of processes.
    Passwords travel as they are: beyond this machine, put a proxy with TLS in front."""
    root_path: str = ""
    """Path under which a proxy shows the page, such as /dino; it may strip that from paths or not."""
    frame_ancestors: tuple[str, ...] = ()
    """Origins of pages that may show this one in a frame, such as https://course.example; otherwise none."""
    downloads: bool = True
    """Offer models that must be downloaded, when a visitor chooses one; --no-downloads offers none."""
    mcp: bool = False
    """Hand the endpoints for programs to language models too, as tools at /mcp (Model Context Protocol)."""
    limits: Annotated[Limits, tyro.conf.arg(name="")] = field(default_factory=Limits)

    def run(self) -> None:
        """Load the model, say the address, and serve until interrupted."""
        set_passive_omp(OPENBLAS_NUM_THREADS="1")  # NumPy's products are all short here
        from app.lab import Lab  # half of the start goes into importing what these need
        from app.models import Models
        from app.security import frame_ancestors_of, host_names, read_users, root_path_of
        from app.server import serve

        hosts = host_names(self.host, self.allowed_hosts)
        users, root_path = read_users(self.auth), root_path_of(self.root_path)
        frames = frame_ancestors_of(self.frame_ancestors)
        models = Models(self.model, self.models_dir, downloads=self.downloads, limits=self.limits)
        lab = Lab(
            models,
            self.limits,
            self.size,
            precision=self.precision,
            device=self.device,
        )
        serve(
            lab,
            self.host,
            self.port,
            hosts,
            users=users,
            root_path=root_path,
            frame_ancestors=frames,
            mcp=self.mcp,
        )


def main(arguments: Sequence[str] | None = None) -> None:
    """Parse and serve; whatever was wrong with the options becomes one sentence and exit code 1."""
    try:
        tyro.cli(Serve, prog="python -m app", args=arguments).run()
    except (*EXPECTED, TypeError) as error:
        sys.exit(f"error: {sentence(error)}")
    except KeyboardInterrupt:
        sys.exit("the attention lab is closed")


if __name__ == "__main__":
    main()
