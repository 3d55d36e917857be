"""A page of results in one HTML file, with its images, that opens from the disk."""

import base64
import io
from collections.abc import Iterable, Mapping, Sequence
from html import escape
from typing import NamedTuple

import numpy as np
from PIL import Image

from dino_model.runtime.files import printable
from segmentation.drawing import rescale
from segmentation.masks import ImageArray

STYLE = """
body { font: 15px/1.4 sans-serif; margin: 2em auto; max-width: 1200px; padding: 0 1em; }
:root { color: #111; background: #fff; }
section { border-top: 1px solid #ccc; margin-top: 1.5em; }
.row { display: flex; flex-wrap: wrap; gap: 10px; }
figure { margin: 0; } figcaption { font-size: 13px; } .best figcaption { font-weight: bold; }
img { display: block; max-width: 100%; height: auto; }
table { border-collapse: collapse; } th, td { text-align: left; padding: 2px 12px 2px 0; }
"""


class Picture(NamedTuple):
    """An image of a report."""

    image: ImageArray
    caption: str
    description: str
    """Text in place of the image, for those who cannot see it."""
    is_best: bool = False


class Section(NamedTuple):
    """A part of a report, such as one input image with its maps."""

    title: str
    pictures: Sequence[Picture]
    text: str = ""
    side: int = 200
    """Largest height of the images in pixels."""


def write_page(title: str, facts: Mapping[str, object], sections: Iterable[Section]) -> str:
    """Return an HTML page that needs no other file."""
    rows = "".join(f"<tr><th>{_text(key)}</th><td>{_text(value)}</td></tr>\n" for key, value in facts.items())
    parts = "".join(_section(section) for section in sections)
    head = (
        f'<meta charset="utf-8">\n<meta name="viewport" content="width=device-width">\n<style>{STYLE}</style>'
    )
    return (
        f'<!doctype html>\n<html lang="en">\n<head>\n<title>{_text(title)}</title>\n{head}\n</head>\n<body>\n'
        f"<h1>{_text(title)}</h1>\n<table>\n{rows}</table>\n{parts}</body>\n</html>\n"
    )


def _section(section: Section) -> str:
    figures = "".join(
        f"<figure{' class=best' if picture.is_best else ''}>"
        f'<img src="{_source(picture.image, section.side)}" '
        f'alt="{_text(picture.description)}"><figcaption>{_text(picture.caption)}</figcaption></figure>\n'
        for picture in section.pictures
    )
    text = f"<p>{_text(section.text)}</p>\n" if section.text else ""
    return (
        f'<section>\n<h2>{_text(section.title)}</h2>\n{text}<div class="row">\n{figures}</div>\n</section>\n'
    )


def _source(image: ImageArray, side: int) -> str:
    scale = side / image.shape[0]
    buffer = io.BytesIO()
    small = np.ascontiguousarray(rescale(image, scale) if scale < 1 else image)
    Image.fromarray(small).save(buffer, "JPEG", quality=85)
    return f"data:image/jpeg;base64,{base64.b64encode(buffer.getvalue()).decode('ascii')}"


def _text(value: object) -> str:
    return escape(printable(str(value)))
