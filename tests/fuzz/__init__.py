"""Random damage to everything that ostta reads, by kinds of input; `make fuzz` runs many, the tests some hundreds.

engine.py       what a kind is, what must hold for every case, and how cases run: in children, with bounds on memory and
time mutate.py       damage to bytes and to trees of values images.py ...   one kind of input each: how it is damaged,
and what reads it __main__.py     python -m fuzz
"""

from __future__ import annotations

from importlib import import_module

from .engine import Kind

# By module; a kind is made only when it runs, as some of them load a model.
KINDS = {
    "images": "images:Images",
    "damaged_states": "states:DamagedStates",
    "forged_states": "states:ForgedStates",
    "archives": "archives:Archives",
    "suites": "suites:Suites",
    "results": "results:Results",
    "checkpoints": "checkpoints:Checkpoints",
    "class_lists": "class_lists:ClassLists",
    "exports": "exports:Exports",
    "feature_files": "features:FeatureFiles",
    "journals": "journals:Journals",
    "sources": "sources:Sources",
}


def make(name: str) -> Kind:
    """Return the kind called `name`."""
    module, _, kind = KINDS[name].partition(":")
    made: Kind = getattr(import_module(f"{__name__}.{module}"), kind)()
    return made
