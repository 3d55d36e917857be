"""Render formulas as MathML, which browsers display without a script or a network."""

from typing import Any

from docutils import nodes
from latex2mathml.converter import convert


def inline(visitor: Any, node: nodes.math) -> None:
    """Write a formula within a line."""
    visitor.body.append(convert(node.astext(), display="inline"))
    raise nodes.SkipNode


def display(visitor: Any, node: nodes.math_block) -> None:
    """Write a displayed formula."""
    visitor.body.append(f'<div class="math">{convert(node.astext(), display="block")}</div>')
    raise nodes.SkipNode
