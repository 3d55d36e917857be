"""Sphinx configuration of the documentation. `make docs` builds it from the repository root."""

import os
import re
import shutil
import sys
from pathlib import Path
from typing import Any

from furo.navigation import get_navigation_tree
from sphinx.application import Sphinx

ROOT = Path(__file__).resolve().parent.parent
sys.path[:0] = [str(ROOT), str(ROOT / "docs")]

import commands
import lessons
import live_figures
import mathml

from notebooks import execute, ipynb, solve

project = "DINO attention lab"
copyright = "the maintainers, Apache-2.0"
extensions = [
    "myst_nb",
    "sphinx.ext.napoleon",
    "autoapi.extension",
    "sphinx_argparse_cli",
    "sphinx_revealjs",
]
root_doc = "docs/index"
include_patterns = [
    "*.md",
    "docs/*.md",
    "docs/reference/**",
    "dino_model/embedded/card.md",
    "dino_model/embedded_dino/card.md",
    "notebooks/README.md",
    "notebooks/[0-9a-z]_*.py",
    "tests/oracles/README.md",
]
smartquotes = False  # options begin with two hyphens

myst_enable_extensions = ["dollarmath", "colon_fence"]
myst_heading_anchors = 4
# A name in a docstring may belong to several classes: it is then left without a link.
suppress_warnings = ["autoapi.python_import_resolution", "ref.python", "sphinx-argparse-cli.*"]

# Lessons are executed here, without a data set, and again when they or the packages change.
nb_custom_formats = {".py": ["notebooks.execute.parse", {}]}
nb_execution_mode = "cache"
nb_execution_cache_path = str(lessons.cache_folder())
nb_execution_timeout = execute.CELL_TIMEOUT_S
nb_execution_raise_on_error = True
nb_execution_show_tb = True
os.environ.update(execute.environment())
os.environ.pop("DINO_DATA", None)

default_role = "code"  # docstrings have Markdown's single backticks
napoleon_custom_sections = [("Source", "notes_style")]
napoleon_use_rtype = False
autoapi_dirs = [str(ROOT / package) for package in ("dino_model", "segmentation", "training")]
autoapi_root = "docs/reference/api"
autoapi_ignore = ["*/commands/*", "*/__main__.py"]
autoapi_options = ["members", "show-module-summary"]
autoapi_add_toctree_entry = False
autoapi_keep_files = False

html_theme = "furo"
html_title = project
html_favicon = "../app/static/favicon.png"
html_static_path = ["static"]
html_extra_path = ["../build/extra"]  # the page that runs the model in the browser
html_css_files = ["book.css"]
html_js_files = ["book.js"]
html_copy_source = False
html_use_index = False
html_domain_indices = False
html_show_sphinx = False
html_show_search_summary = False  # a page opened from disk cannot fetch
html_math_renderer = "mathml"
pygments_style = "a11y-high-contrast-light"
pygments_dark_style = "a11y-high-contrast-dark"

revealjs_style_theme = "serif"
revealjs_static_path = ["static"]
revealjs_css_files = ["slides.css"]
revealjs_script_plugins = [{"name": "RevealNotes", "src": "revealjs/plugin/notes/notes.js"}]
revealjs_script_conf = {"pdfMaxPagesPerSlide": 1, "slideNumber": "c/t"}
if tags.has("slides"):  # noqa: F821 (defined by Sphinx)
    extensions = ["myst_parser", "sphinx_revealjs"]
    root_doc = "docs/lecture"
    html_extra_path = []
    include_patterns = ["docs/lecture.md"]
    suppress_warnings.append("myst.xref_missing")


def setup(app: Sphinx) -> None:
    """Register the formula renderer, the command reference, links and the data of the live figures."""
    app.add_html_math_renderer("mathml", (mathml.inline, None), (mathml.display, None))
    app.add_config_value("repository", ipynb.project_address(), "env", types=[str])
    if tags.has("slides"):  # noqa: F821
        app.connect("build-finished", delete_unused_files)
        return
    commands.write_page(ROOT / "docs/reference/commands.md")
    app.connect("source-read", add_links)
    app.connect("autodoc-process-docstring", escape_markdown)
    app.connect("html-page-context", label_navigation, priority=900)
    app.connect("html-page-context", load_live_figures)
    app.connect("build-finished", write_extras)


def delete_unused_files(app: Sphinx, error: Exception | None) -> None:
    """Delete 5 MB of reveal.js that the slides do not load."""
    reveal = Path(app.outdir, "_static", "revealjs")
    for unused in ("plugin/highlight", "dist/theme/fonts/source-sans-pro"):
        shutil.rmtree(reveal / unused, ignore_errors=True)
    for source_map in reveal.rglob("*.map"):
        source_map.unlink()


def add_links(app: Sphinx, page: str, source: list[str]) -> None:
    """Add folded hints to lessons, and links to their notebooks and to the slides of the lecture."""
    lesson = ROOT / f"{page}.py"
    if lesson in execute.lessons():
        source[0] = solve.add_hints(source[0])
    if lesson in execute.lessons() and ipynb.is_on_github(app.config.repository):
        links = ipynb.links_of(lesson, app.config.repository)
        source[0] = re.sub(r"^(# # .*\n)", rf"\1#\n# {links}\n", source[0], count=1, flags=re.MULTILINE)
    if page == "docs/lecture":
        files = {"Slides": "slides/docs/lecture.html", "PDF": "slides/lecture.pdf"}
        built = {name: file for name, file in files.items() if Path(app.outdir, file).is_file()}
        links = " · ".join(f'<a href="../{file}">{name}</a>' for name, file in built.items())
        source[0] = source[0].replace("\n## ", f"\n<p>{links}</p>\n\n## ", 1)


def escape_markdown(app: Sphinx, what: str, name: str, thing: Any, options: Any, lines: list[str]) -> None:
    """Escape bars and asterisks outside of code, which are markup in reStructuredText only."""
    for number, line in enumerate(lines):
        if line.startswith("    "):  # code
            continue
        parts = line.split("`")
        parts[::2] = [re.sub(r"([|*])", r"\\\1", part) for part in parts[::2]]
        lines[number] = "`".join(parts)


def label_navigation(app: Sphinx, page: str, template: str, context: dict[str, Any], doctree: Any) -> None:
    """Give the sidebar's captions a heading level, which screen readers need; open the page's branch only."""
    if "toctree" in context:
        options = {"collapse": True, "titles_only": True, "maxdepth": -1, "includehidden": True}
        tree = get_navigation_tree(context["toctree"](**options))
        context["furo_navigation_tree"] = tree.replace('role="heading"', 'role="heading" aria-level="2"')


def load_live_figures(app: Sphinx, page: str, template: str, context: dict[str, Any], doctree: Any) -> None:
    """Load data and code of the live figures on their pages only."""
    for name in live_figures.scripts(page):
        app.add_js_file(f"figures/{name}.js", defer="defer")


def write_extras(app: Sphinx, error: Exception | None) -> None:
    """Write the live figures and an index page that forwards to the first page."""
    if error is None and app.builder.name == "html":
        output = Path(app.outdir)
        live_figures.put(output / "_static" / "figures")
        (output / "index.html").write_text(
            '<!doctype html><html lang="en"><title>DINO attention lab</title>'
            '<meta http-equiv="refresh" content="0; url=docs/index.html">'
            '<a href="docs/index.html">Start</a>\n'
        )
