"""Write a page that runs the model in the browser: static files, no server.

python -m app.static_site OUTPUT
python -m http.server --directory OUTPUT

The view and its arithmetic are those of the app; ONNX Runtime Web computes queries and keys. The runtime
comes from the npm package in node_modules (`npm ci`).
"""

import json
import shutil
import sys
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import tyro

from app import STATIC
from dino_model import photographs
from dino_model.runtime.errors import SettingError
from dino_model.runtime.outputs import PROVENANCE, check_output_folder, run_command, write_provenance

RUNTIME = Path(__file__).parents[1] / "node_modules" / "onnxruntime-web" / "dist"
RUNTIME_FILES = ("ort.wasm.bundle.min.mjs", "ort-wasm-simd-threaded.wasm", "ort-wasm-simd-threaded.mjs")
EXAMPLES = ("sheep", "kitten", "macaw", "shepherd", "koala", "kingfisher")


@dataclass(frozen=True)
class StaticSite:
    """Write index.html, the model, the views and the runtime to a folder."""

    output: tyro.conf.Positional[Path]
    """Folder to write."""
    model: str = "embedded"
    """Name of a model, checkpoint file or run: DINO, DINOv2 or one of timm's plain ViTs."""
    overwrite: bool = False
    """Replace the files of an earlier call."""

    def run(self) -> None:
        """Check, export, copy."""
        missing = [name for name in RUNTIME_FILES if not (RUNTIME / name).is_file()]
        if missing:
            raise SettingError(f"{RUNTIME} has no {missing[0]}: run `npm ci` first")
        check_output_folder(self.output, overwrite=self.overwrite)
        self.output.mkdir(parents=True, exist_ok=True)
        from dino_model.models.export import write_onnx
        from dino_model.models.load import load_model

        model = load_model(self.model)
        vit: Any = model.backbone
        write_onnx(vit, self.output / "model.onnx", "fp16")
        patch = vit.patch_embed.patch_size[0]
        facts = {"model": self.model, "patch_size": patch, "mean": model.mean, "std": model.std}
        (self.output / "model.json").write_text(json.dumps(facts) + "\n", encoding="utf-8")
        for folder in ("maths", "views"):
            shutil.copytree(STATIC / folder, self.output / folder, dirs_exist_ok=True)
        copied = {
            "": [STATIC / "favicon.png", STATIC / "page.css"],
            "site": [file for file in (STATIC / "site").iterdir() if file.name != "index.html"],
            "ort": [RUNTIME / name for name in RUNTIME_FILES],
            "examples": [photographs.FOLDER / f"{name}.jpg" for name in EXAMPLES],
        }
        for folder, files in copied.items():
            (self.output / folder).mkdir(exist_ok=True)
            for file in files:
                shutil.copy(file, self.output / folder)
        page = (STATIC / "site" / "index.html").read_text(encoding="utf-8")
        page = page.replace("EXAMPLES", " ".join(EXAMPLES))
        (self.output / "index.html").write_text(page, encoding="utf-8")
        settings = {"model": self.model, "precision": "fp16"}
        contents = sorted(entry.name for entry in self.output.iterdir() if entry.name != PROVENANCE)
        write_provenance(self.output / PROVENANCE, settings, contents=contents)
        print(f"wrote {self.output}; open it with python -m http.server --directory {self.output}")


if __name__ == "__main__":
    sys.exit(run_command(lambda: tyro.cli(StaticSite, prog="python -m app.static_site").run()))
