"""Pydantic models for `ostta.json`, the description of an exported backbone."""

from __future__ import annotations

import dataclasses
import json
from typing import Annotated, Literal

from pydantic import AfterValidator, Field

from ..core.types import Preprocessing
from ..schema import MAX_CLASSES, MAX_ENTRIES, Sha256, StrictModel, Text, Texts
from .onnx import FILES, FORMAT, SEAL, seal
from .prompts import check_class_names, check_templates

Pixels = Annotated[int, Field(ge=1, le=10_000)]
# The range of single precision.
Number = Annotated[float, Field(gt=-1e38, lt=1e38)]
Positive = Annotated[float, Field(gt=0, lt=1e38)]
OptionValue = Text | bool | int | float | None
ClassNames = Annotated[tuple[Text, ...], Field(max_length=MAX_CLASSES)]


class PreprocessingModel(StrictModel):
    """Serialised form of `ostta.core.types.Preprocessing`."""

    image_size: Pixels
    mean: tuple[Number, Number, Number]
    std: tuple[Positive, Positive, Positive]
    fit: Literal["crop", "square"]
    resize: Pixels | None
    resample: Annotated[int, Field(ge=0, le=5)]

    @classmethod
    def of(cls, preprocessing: Preprocessing) -> PreprocessingModel:
        return cls(**dataclasses.asdict(preprocessing))

    def build(self) -> Preprocessing:
        """Return the values as a `Preprocessing`."""
        return Preprocessing(**self.model_dump())


def _check_files(hashes: dict[str, str]) -> dict[str, str]:
    if set(hashes) != set(FILES):
        raise ValueError(f"the files must be {' and '.join(FILES)}")
    return hashes


class Exported(StrictModel):
    """Description of an exported backbone.

    backbone, weight_hash: id and weight hash of the exported backbone.
    precision:             "float32", or "int8" if the weights and inputs of dense layers are quantised.
    templates:             templates of the class embeddings; empty if the embeddings were passed to `wrap`.
    unfamiliar:            classes outside the vocabulary of the model.
    largest_difference:    largest difference from the unit features of the torch image tower, measured during export.
    files:                 SHA-256 of each file.
    """

    backbone: Text
    weight_hash: Sha256
    precision: Literal["float32", "int8"]
    preprocessing: PreprocessingModel
    logit_scale: Positive
    classes: Annotated[ClassNames, AfterValidator(check_class_names)]
    templates: Annotated[tuple[Text, ...], AfterValidator(lambda given: check_templates(given) if given else ())]
    defaults: Annotated[dict[Text, dict[Text, OptionValue | list[OptionValue]]], Field(max_length=MAX_ENTRIES)]
    remark: Text
    unfamiliar: Annotated[ClassNames, AfterValidator(lambda given: check_class_names(given) if given else ())]
    largest_difference: Annotated[float, Field(ge=0, lt=1e38)]
    versions: Texts
    files: Annotated[dict[str, Sha256], AfterValidator(_check_files)]

    def to_json(self) -> str:
        content = {"format": FORMAT, **self.model_dump(mode="json")}
        return json.dumps({**content, SEAL: seal(content)}, indent=1) + "\n"
