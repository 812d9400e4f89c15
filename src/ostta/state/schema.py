"""Pydantic models of the JSON in a state file. Only `Description.read` imports this module."""

from __future__ import annotations

from functools import cache
from typing import Annotated, Any

from pydantic import BaseModel, Field, create_model

from ..config.declare import types_of
from ..core.checks import LARGEST_SEED, MOST_STEPS
from ..schema import MAX_CLASSES, MAX_ENTRIES, Sha256, StrictModel, Text, Texts

Entries = Annotated[dict[Text, Any], Field(max_length=MAX_ENTRIES)]


class BackboneModel(StrictModel):
    """The backbone that a state was saved with."""

    id: Text
    weight_hash: Sha256
    restorable: bool


class StateModel(StrictModel):
    """Content of the JSON in the current format. `options_model` and the options classes check the options."""

    backbone: BackboneModel
    classes: Annotated[tuple[Text, ...], Field(min_length=1, max_length=MAX_CLASSES)]
    method: Text
    score: Text
    identifier: Text
    profile: Text
    options: dict[Text, Entries]
    option_sources: dict[Text, Texts]
    seed: Annotated[int, Field(ge=0, le=LARGEST_SEED)]
    step: Annotated[int, Field(ge=0, le=MOST_STEPS)]
    versions: Texts


@cache
def options_model(options: type[Any]) -> type[BaseModel]:
    """Return a model with the types of an options class, in which every option is optional."""
    fields: Any = {name: (hint, None) for name, hint in types_of(options).items()}
    return create_model(options.__name__, __base__=StrictModel, **fields)
