"""`ostta ls measures`."""

from __future__ import annotations

import warnings

from .listing import print_table


def measures() -> None:
    """List the measures that a suite can use as metrics.

    Example: ostta ls measures
    """
    from ..core.types import Error
    from ..evaluation.measures import find_measure, measure_names

    rows = []
    for name in measure_names():
        try:
            measure = find_measure(name)
        except Error as problem:
            warnings.warn(str(problem), stacklevel=1)
        else:
            rows.append((measure.name, measure.heading, (measure.compute.__doc__ or "").partition("\n")[0]))
    print_table("Measures", ("measure", "heading", "description"), rows)
