"""Sphinx's settings for the book; `book.site` starts it."""

import re
from typing import Any

from sphinx.application import Sphinx

from book import live, mathml

project = "DINO attention lab"
copyright = "the maintainers, Apache-2.0"
extensions = ["myst_nb", "sphinx.ext.autodoc", "sphinx.ext.napoleon"]
root_doc = "index"
exclude_patterns = ["slides/**"]
smartquotes = False  # options begin with two hyphens

# Lessons come with their outputs (book.lessons).
nb_execution_mode = "off"
myst_enable_extensions = ["dollarmath", "colon_fence"]
myst_heading_anchors = 4

# Docstrings have Markdown's single backticks around code, and a section of their own.
default_role = "code"
napoleon_custom_sections = [("Source", "notes_style")]
napoleon_use_rtype = False
autodoc_member_order = "bysource"
autodoc_typehints = "signature"
autodoc_preserve_defaults = True
add_module_names = False

html_theme = "furo"
html_title = "DINO attention lab"
html_static_path = ["static"]
html_css_files = ["book.css"]
html_js_files = ["book.js"]
html_copy_source = False
html_use_index = False
html_domain_indices = False
html_show_sphinx = False
html_show_search_summary = False  # would fetch pages, which nothing may do from a disk
html_math_renderer = "mathml"
pygments_style = "a11y-high-contrast-light"
pygments_dark_style = "a11y-high-contrast-dark"


def setup(app: Sphinx) -> None:
    """Formulas as MathML, which browsers draw without a script; docstrings as Markdown has them."""
    app.add_html_math_renderer("mathml", (mathml.inline, None), (mathml.display, None))
    app.connect("autodoc-process-docstring", _as_restructured_text)
    app.connect("html-page-context", _level_captions, priority=900)
    app.connect("html-page-context", _load_figures)


def _as_restructured_text(
    app: Sphinx, what: str, name: str, thing: Any, options: Any, lines: list[str]
) -> None:
    """Bars and asterisks outside code mean themselves."""
    for number, line in enumerate(lines):
        parts = line.split("`")
        parts[::2] = [re.sub(r"([|*])", r"\\\1", part) for part in parts[::2]]
        lines[number] = "`".join(parts)


def _level_captions(app: Sphinx, page: str, template: str, context: dict[str, Any], doctree: Any) -> None:
    """Sphinx calls the captions in the sidebar headings, but of no level."""
    tree = context.get("furo_navigation_tree", "")
    context["furo_navigation_tree"] = tree.replace('role="heading"', 'role="heading" aria-level="2"')


def _load_figures(app: Sphinx, page: str, template: str, context: dict[str, Any], doctree: Any) -> None:
    """The page of live figures loads their data, then what draws them."""
    if page == live.PAGE:
        for name in (*live.makers(), "figures"):
            app.add_js_file(f"figures/{name}.js", defer="defer")
