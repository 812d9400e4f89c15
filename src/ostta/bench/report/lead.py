"""The first sentence of a page."""

from __future__ import annotations

from ..tables.suite_figures import SuiteFigures


def lead(figures: SuiteFigures) -> str:
    return "to come"
