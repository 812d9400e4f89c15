"""Which figures of the paper belong to a run: its fields, as filters for `values.find`."""

from __future__ import annotations

from collections.abc import Mapping
from contextlib import suppress
from typing import Any

from ..scenario import FrequentScenario

Filters = dict[str, str | list[str]]

# The paper's name of a backbone. The embedded ones stand beside the figures of the model whose part they play.
BACKBONES = {
    "openai/clip-vit-base-patch16": "clip-vit-b16",
    "openai/clip-vit-base-patch16+maple:maple": "maple-vit-b16",
    "openai/clip-vit-base-patch32": "clip-vit-b32",
    "openai/clip-vit-large-patch14": "clip-vit-l14",
    "laion/CLIP-ViT-L-14-laion2B-s32B-b82K": "openclip-vit-l14",
    "embedded": "clip-vit-b16",
    "embedded+maple": "maple-vit-b16",
}
# What the paper's tables have where they name nothing else; its closed sets have no identifier at all.
USUAL = {"identifier": ("lda", "all"), "corruption": ("snow",)}


def filters_of(run: Mapping[str, Any]) -> Filters:
    """The filters of a run, given all its fields by name; those of a figure follow with `metric`."""
    return {
        "backbone": BACKBONES.get(run["backbone"], run["backbone"]),
        "desired": run["desired"],
        # The paper does not say which split; the published code takes the training ones.
        "undesired": (run["undesired"] or "").partition(":")[0],
        "scenario": _scenario(run["scenario"], run["ratio"]),
        "method": run["method"],
        "setting": _setting(run),
    }


def _scenario(scenario: Mapping[str, Any], ratio: float) -> str:
    kind: str = scenario.get("kind", "single")
    if kind == "frequent":
        return f"frequent/{scenario.get('images', FrequentScenario.model_fields['images'].default)}"
    if kind == "single" and ratio not in (0.0, 1.0):
        return f"ratio/{ratio:g}"
    return {"continual": "continual/mean", "smooth": "ccc", "ordered": "ccc"}.get(kind, kind)


def _setting(run: Mapping[str, Any]) -> str:
    """What differs from a method's defaults, sorted, with short numbers."""
    parts = {**run["options"], **{name: run[name] for name, usual in USUAL.items() if run[name] not in usual}}
    return ";".join(f"{name}={_text(value)}" for name, value in sorted(parts.items()))


def _text(value: Any) -> str:
    if isinstance(value, list | tuple):
        return ",".join(map(_text, value))
    if isinstance(value, int | float) and not isinstance(value, bool):
        with suppress(OverflowError):
            return f"{value:g}"
    return str(value)
