"""From a processor config of the hub to `Preprocessing`."""

from __future__ import annotations

import dataclasses
import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from ..core.types import Error, Preprocessing

CLIP_MEAN = (0.48145466, 0.4578275, 0.40821073)
CLIP_STD = (0.26862954, 0.26130258, 0.27577711)
HALVES = (0.5, 0.5, 0.5)


def clip_preprocessing(image_size: int) -> Preprocessing:
    """What CLIP's family does where no file says otherwise."""
    return Preprocessing(image_size, CLIP_MEAN, CLIP_STD, fit="crop", resize=image_size)


def siglip_preprocessing(image_size: int) -> Preprocessing:
    """What SigLIP's family does where no file says otherwise."""
    return Preprocessing(image_size, HALVES, HALVES, fit="square")


def read_preprocessing(folder: Path, default: Preprocessing) -> Preprocessing:
    """The folder's processor config; `default` fills what it does not say, or stands in for a missing file."""
    for name in ("preprocessor_config.json", "processor_config.json"):
        file = folder / name
        if file.is_file():
            try:
                content = json.loads(file.read_text(encoding="utf-8"))
                # `transformers` 5 saves the image part inside the config of the whole processor.
                config = content.get("image_processor", content)
            except (ValueError, AttributeError) as problem:
                raise Error(f"{file} is not a processor config that can be read: {problem}.") from problem
            return fitting(config, default, str(file))
    return default


def fitting(config: Mapping[str, Any], default: Preprocessing, what: str) -> Preprocessing:
    """`parse`, and an Error about `what` where it cannot be followed or makes images of another size than the tower takes."""
    try:
        parsed = parse(config, default)
    except (ValueError, TypeError, AttributeError, KeyError) as problem:
        raise Error(f"{what} is not a processor config that can be read: {problem}.") from problem
    if parsed.image_size != default.image_size:
        raise Error(
            f"{what} makes images of {parsed.image_size} pixels, but the image tower takes {default.image_size}."
        )
    return parsed


def parse(config: Mapping[str, Any], default: Preprocessing) -> Preprocessing:
    """`size` comes as a number, as {"shortest_edge"} or as {"height", "width"}; `crop_size` as a number or a pair."""
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
        raise ValueError(f"images of {size['width']} x {size['height']} pixels are not supported, only square ones")
    return int(size["height"])


def _three(values: Any) -> tuple[float, float, float]:
    red, green, blue = values
    return float(red), float(green), float(blue)
