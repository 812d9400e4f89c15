"""A backbone from a folder in the hub's format."""

from __future__ import annotations

import json
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import torch
from torch import nn

from ..core.checks import one_line
from ..core.types import Error
from .clip import Clip, Siglip, TwoTowers
from .hub import NEEDS_EXTRA
from .preprocessing import read_preprocessing

FAMILIES: dict[str, type[TwoTowers]] = {"clip": Clip, "siglip": Siglip}
SUPPORTED = "CLIP, OpenCLIP in transformers' format, SigLIP, and SigLIP 2 of fixed resolution"


def load_folder(folder: Path, id: str) -> TwoTowers:
    """The model in `folder`, in fp32; `id` is what the user calls it."""
    family = _family(folder, id)
    with quiet():
        model = _model(folder, family)
        tokenizer = load_tokenizer(folder)
    size: Any = model.config.vision_config.image_size  # type: ignore[union-attr]
    side = size if isinstance(size, int) else size[0]
    return family(id, model, tokenizer, read_preprocessing(folder, family.usual_preprocessing(side)))


def _family(folder: Path, id: str) -> type[TwoTowers]:
    """Decided from the JSON alone, before anything large is imported or read."""
    try:
        kind = json.loads((folder / "config.json").read_text(encoding="utf-8"))["model_type"]
    except FileNotFoundError as problem:
        raise Error(f"The folder {folder} holds no model: there is no config.json in it.") from problem
    except (ValueError, KeyError, TypeError) as problem:
        raise Error(f"{folder / 'config.json'} is not the config of a model: it names no model_type.") from problem
    if kind == "siglip2":
        raise Error(
            f"{id} is a SigLIP 2 of flexible resolution (NaFlex), which is not supported: "
            "use one of fixed resolution, such as google/siglip2-base-patch16-224."
        )
    if kind not in FAMILIES:
        raise Error(
            f"{id} is a model of type {kind!r}, which is not supported: there are {SUPPORTED}, "
            "and `ostta.backbones.wrap` for any other image tower."
        )
    return FAMILIES[kind]


def _model(folder: Path, family: type[TwoTowers]) -> nn.Module:
    from transformers import CLIPModel, SiglipModel

    architecture: Any = CLIPModel if family is Clip else SiglipModel
    try:
        model, report = architecture.from_pretrained(
            folder,
            dtype=torch.float32,
            attn_implementation="sdpa",
            local_files_only=True,
            ignore_mismatched_sizes=True,
            output_loading_info=True,
        )
    except Exception as problem:  # damaged files end in many kinds of exceptions, of several libraries
        raise Error(f"The model in {folder} cannot be read: {_short(problem)}") from problem
    # `transformers` would only warn, and leave what is missing at random values.
    missing = sorted([*report["missing_keys"], *(key for key, *_ in report["mismatched_keys"])])
    if missing:
        raise Error(
            f"The weights in {folder} do not fit its config.json: {missing[0]} is missing or has another shape."
        )
    loaded: nn.Module = model
    return loaded


def load_tokenizer(folder: Path) -> Any:
    """tokenizer.json exactly as it is stored; without one, what `transformers` makes of the older files."""
    from transformers import AutoTokenizer, PreTrainedTokenizerFast

    stored = (folder / "tokenizer.json").is_file()
    # Without any file `transformers` would make up a tokenizer of three words.
    if not (stored or (folder / "vocab.json").is_file() or (folder / "spiece.model").is_file()):
        raise Error(f"The folder {folder} holds no tokenizer: there is no tokenizer.json in it.")
    kind: Any = PreTrainedTokenizerFast if stored else AutoTokenizer
    try:
        return kind.from_pretrained(folder, local_files_only=True)
    except ImportError as problem:
        raise Error(
            f"The tokenizer in {folder} is a spiece.model: install what reads it with `pip install sentencepiece protobuf`."
        ) from problem
    except Exception as problem:  # as above
        raise Error(f"The tokenizer in {folder} cannot be read: {_short(problem)}") from problem


def _short(problem: Exception) -> str:
    words = one_line(problem) or type(problem).__name__
    return words[:200].rstrip(".!: ") + "."


@contextmanager
def quiet() -> Iterator[None]:
    """Without the progress bars and warnings of `transformers`; what matters in them is checked here and raised."""
    try:
        from transformers.utils import logging
    except ImportError as problem:
        raise Error(NEEDS_EXTRA) from problem
    verbosity, bars = logging.get_verbosity(), logging.is_progress_bar_enabled()
    logging.set_verbosity_error()
    logging.disable_progress_bar()
    try:
        yield
    finally:
        logging.set_verbosity(verbosity)
        if bars:
            logging.enable_progress_bar()
