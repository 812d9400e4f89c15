"""Convert processor configs of the Hugging Face hub to `Preprocessing`."""

from __future__ import annotations

import dataclasses
import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from ..core.errors import translate_errors
from ..core.types import Error, Preprocessing

CLIP_MEAN = (0.48145466, 0.4578275, 0.40821073)
CLIP_STD = (0.26862954, 0.26130258, 0.27577711)
HALVES = (0.5, 0.5, 0.5)


def clip_preprocessing(image_size: int) -> Preprocessing:
    """Return the default preprocessing for CLIP models without a processor config."""
    return Preprocessing(image_size, CLIP_MEAN, CLIP_STD, fit="crop", resize=image_size)


def siglip_preprocessing(image_size: int) -> Preprocessing:
    """Return the default preprocessing for SigLIP models without a processor config."""
    return Preprocessing(image_size, HALVES, HALVES, fit="square")


def read_preprocessing(folder: Path, default: Preprocessing) -> Preprocessing:
    """Read the preprocessing from the processor config in a folder. `default` supplies missing entries."""
    for name in ("preprocessor_config.json", "processor_config.json"):
        file = folder / name
        if file.is_file():
            message = f"{file} is not a readable processor config: {{reason}}."
            with translate_errors("preprocessing-invalid", message, ValueError, AttributeError):
                content = json.loads(file.read_text(encoding="utf-8"))
                # `transformers` 5 nests the image processor config in the processor config.
                config = content.get("image_processor", content)
            return check_preprocessing(config, default, str(file))
    return default


def check_preprocessing(config: Mapping[str, Any], default: Preprocessing, source: str) -> Preprocessing:
    """Parse a processor config. Raise an Error about `source` if it is invalid or does not fit the image tower."""
    message = f"{source} is not a readable processor config: {{reason}}."
    with translate_errors("preprocessing-invalid", message, ValueError, TypeError, AttributeError, KeyError):
        parsed = parse_preprocessing(config, default)
    if parsed.image_size != default.image_size:
        raise Error(
            f"{source} produces images of {parsed.image_size} pixels, but the image tower expects "
            f"{default.image_size}.",
            code="preprocessing-invalid",
        )
    return parsed


def parse_preprocessing(config: Mapping[str, Any], default: Preprocessing) -> Preprocessing:
    """Parse a processor config.

    `size` is a number, {"shortest_edge"} or {"height", "width"}; `crop_size` is a number or a pair.
    """
    fit, resize = _fit_and_side(config.get("size"), default)
    image_size = resize
    if fit == "crop":
        image_size = _square(config["crop_size"]) if config.get("crop_size") is not None else resize
    normalised = config.get("do_normalize", True)
    return dataclasses.replace(
        default,
        image_size=image_size,
        mean=_three(config.get("image_mean") or default.mean) if normalised else (0.0, 0.0, 0.0),
        std=_three(config.get("image_std") or default.std) if normalised else (1.0, 1.0, 1.0),
        fit=fit,
        resize=resize if fit == "crop" else None,
        resample=default.resample if config.get("resample") is None else int(config["resample"]),
    )


def _fit_and_side(size: Any, default: Preprocessing) -> tuple[str, int]:
    if size is None:
        return default.fit, default.image_size
    if isinstance(size, int):
        return default.fit, size
    if "shortest_edge" in size:
        return "crop", int(size["shortest_edge"])
    return "square", _square(size)


def _square(size: Any) -> int:
    if isinstance(size, int):
        return size
    if size["height"] != size["width"]:
        raise ValueError(f"images of {size['width']} x {size['height']} pixels are not square")
    return int(size["height"])


def _three(values: Any) -> tuple[float, float, float]:
    red, green, blue = values
    return float(red), float(green), float(blue)
