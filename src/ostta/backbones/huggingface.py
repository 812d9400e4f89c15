"""Backbones from `transformers` models: from a folder, from the Hugging Face hub, or already loaded."""

from __future__ import annotations

import json
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any, Protocol

import torch
from torch import nn

from ..core.errors import import_extra, translate_errors
from ..core.overlay import run_in
from ..core.types import Error
from .clip import Clip, Tokenizer, TwoTowers
from .onnx import is_exported
from .preprocessing import check_preprocessing, read_preprocessing
from .siglip import Siglip
from .towers import shared_copy

FAMILIES: dict[str, type[TwoTowers]] = {"clip": Clip, "siglip": Siglip}
SUPPORTED = "CLIP, OpenCLIP in the format of transformers, SigLIP, and SigLIP 2 of fixed resolution"
# Files are selected by name, because repositories also contain the weights for other frameworks.
SMALL_FILES = (
    "config.json", "preprocessor_config.json", "processor_config.json", "tokenizer.json", "tokenizer_config.json",
    "special_tokens_map.json", "added_tokens.json", "vocab.json", "merges.txt", "spiece.model",
)  # fmt: skip
WEIGHTS = ("model.safetensors", "model.safetensors.index.json", "model-*.safetensors")
OLDER_WEIGHTS = ("pytorch_model.bin", "pytorch_model.bin.index.json", "pytorch_model-*.bin")
PURPOSE = "A CLIP, a SigLIP or the embedded model"


class ImageProcessor(Protocol):
    """Interface of the `transformers` image processors that ostta uses."""

    def to_dict(self) -> dict[str, object]:
        """Return the processor config in the format of the hub."""


class Processor(Protocol):
    """Interface of the processors returned by `AutoProcessor.from_pretrained` that ostta uses."""

    @property
    def tokenizer(self) -> Tokenizer: ...

    @property
    def image_processor(self) -> ImageProcessor: ...


# --- a folder ---------------------------------------------------------------------------------------------------------
def load_folder(folder: Path, id: str) -> TwoTowers:
    """Load the model in `folder` in single precision. `id` is the name shown to the user."""
    family = _family_in(folder, id)
    with without_logs():
        model = _load_model(folder, family)
        tokenizer = load_tokenizer(folder)
    return family(id, model, tokenizer, read_preprocessing(folder, family.usual_preprocessing(image_side(model))))


def image_side(model: nn.Module) -> int:
    """Return the input image size of a model in pixels."""
    config: Any = model.config
    size: int | Sequence[int] = config.vision_config.image_size
    return size if isinstance(size, int) else size[0]


def _family_in(folder: Path, id: str) -> type[TwoTowers]:
    """Return the backbone class for the model in a folder. Only config.json is read."""
    file = folder / "config.json"
    if not file.is_file():
        advice = f" It is an exported backbone: use the name onnx:{folder}." if is_exported(folder) else ""
        raise Error(f"The folder {folder} has no model: config.json is missing.{advice}", code="backbone-not-found")
    message = f"{file} is not the config of a model: it has no model_type."
    with translate_errors("backbone-unreadable", message, OSError, ValueError, KeyError, TypeError):
        kind = json.loads(file.read_text(encoding="utf-8"))["model_type"]
    return family_of(kind, id)


def family_of(kind: str, id: str) -> type[TwoTowers]:
    """Return the backbone class for a `model_type` of `transformers`."""
    if kind == "siglip2":
        raise Error(
            f"{id} is a SigLIP 2 of flexible resolution (NaFlex), which is not supported: use a model of fixed "
            "resolution, such as google/siglip2-base-patch16-224.",
            code="model-unsupported",
        )
    if kind not in FAMILIES:
        raise Error(
            f"{id} is a model of type {kind!r}, which is not supported: use {SUPPORTED}, or pass another image tower "
            "to `ostta.backbones.wrap`.",
            code="model-unsupported",
        )
    return FAMILIES[kind]


def _load_model(folder: Path, family: type[TwoTowers]) -> nn.Module:
    from transformers import CLIPModel, SiglipModel

    architecture: Any = CLIPModel if family is Clip else SiglipModel
    # Several libraries read the files, and damaged files raise many types of exceptions.
    with translate_errors("backbone-unreadable", f"The model in {folder} cannot be read: {{reason}}."):
        model, report = architecture.from_pretrained(
            folder,
            dtype=torch.float32,
            attn_implementation="sdpa",
            local_files_only=True,
            ignore_mismatched_sizes=True,
            output_loading_info=True,
        )
    # `transformers` only warns about missing weights and initialises them at random.
    missing = sorted([*report["missing_keys"], *(key for key, *_ in report["mismatched_keys"])])
    if missing:
        raise Error(
            f"The weights in {folder} do not fit its config.json: {missing[0]} is missing or has another shape.",
            code="backbone-unreadable",
        )
    loaded: nn.Module = model
    return loaded


def load_tokenizer(folder: Path) -> Tokenizer:
    """Load tokenizer.json. If it is missing, `transformers` converts the files of the older format."""
    from transformers import AutoTokenizer, PreTrainedTokenizerFast

    stored = (folder / "tokenizer.json").is_file()
    # Without these files, `transformers` silently creates a tokenizer with three words.
    if not (stored or (folder / "vocab.json").is_file() or (folder / "spiece.model").is_file()):
        raise Error(f"The folder {folder} has no tokenizer: tokenizer.json is missing.", code="backbone-unreadable")
    kind: Any = PreTrainedTokenizerFast if stored else AutoTokenizer
    libraries = (
        f"The tokenizer in {folder} is a spiece.model: install its libraries with `pip install sentencepiece protobuf`."
    )
    with (
        translate_errors("backbone-unreadable", f"The tokenizer in {folder} cannot be read: {{reason}}."),
        translate_errors("library-missing", libraries, ImportError),
    ):
        tokenizer: Tokenizer = kind.from_pretrained(folder, local_files_only=True)
    return tokenizer


@contextmanager
def without_logs() -> Iterator[None]:
    """Suppress progress bars and warnings of `transformers`. Errors are still raised."""
    logging = import_extra("transformers.utils", PURPOSE, "clip").logging
    verbosity, bars = logging.get_verbosity(), logging.is_progress_bar_enabled()
    logging.set_verbosity_error()
    logging.disable_progress_bar()
    try:
        yield
    finally:
        logging.set_verbosity(verbosity)
        if bars:
            logging.enable_progress_bar()


# --- the hub ----------------------------------------------------------------------------------------------------------
def model_folder(name: str) -> Path:
    """Return the local folder of a hub model. The model is downloaded if the cache is incomplete."""
    errors = import_extra("huggingface_hub.errors", PURPOSE, "clip")
    httpx = import_extra("huggingface_hub.utils", PURPOSE, "clip").httpx
    missing = f"There is no folder {name!r}, and "
    offline = (
        f"{missing}the model is not in the cache and the hub cannot be reached: download it elsewhere with "
        f"`hf download {name} --local-dir DIR` and pass DIR."
    )
    unknown = f"{missing}no model with this id on the hub that you may read."
    invalid = f"{missing}it is not a valid id of a model on the hub."
    with (
        translate_errors("hub-unreachable", offline, OSError, httpx.HTTPError),
        translate_errors("backbone-not-found", unknown, errors.RepositoryNotFoundError),
        translate_errors("backbone-not-found", invalid, errors.HFValidationError),
    ):
        return _cached(name) or _snapshot(name, local_files_only=False)


def _snapshot(name: str, local_files_only: bool) -> Path:
    """Return the folder with the files that a backbone reads.

    The file patterns are also passed for cached models. Without them, `huggingface_hub` considers a snapshot incomplete
    if any file of the repository is missing, such as the weights for another framework.
    """
    from huggingface_hub import snapshot_download

    patterns = [*SMALL_FILES, *WEIGHTS]
    folder = Path(snapshot_download(name, allow_patterns=patterns, local_files_only=local_files_only))
    if not _has(folder, WEIGHTS):
        older = [*OLDER_WEIGHTS]
        folder = Path(snapshot_download(name, allow_patterns=older, local_files_only=local_files_only))
    return folder


def _cached(name: str) -> Path | None:
    """Return the cached snapshot if it is complete, so that the model loads offline and stays the same."""
    from huggingface_hub.errors import LocalEntryNotFoundError

    try:
        folder = _snapshot(name, local_files_only=True)
    except LocalEntryNotFoundError:
        return None
    complete = (
        _has(folder, ("config.json",))
        and _has(folder, ("preprocessor_config.json", "processor_config.json"))
        and _has(folder, ("tokenizer.json", "vocab.json", "spiece.model"))
        and _has(folder, (*WEIGHTS, *OLDER_WEIGHTS))
    )
    return folder if complete else None


def _has(folder: Path, patterns: tuple[str, ...]) -> bool:
    return any(True for pattern in patterns for _ in folder.glob(pattern))


# --- already loaded ---------------------------------------------------------------------------------------------------
def from_transformers(model: nn.Module, processor: Processor) -> TwoTowers:
    """Build a backbone from a loaded CLIPModel or SiglipModel and its processor.

    The backbone keeps the device and precision of the model and shares its weights. The model is not modified. Do not
    train the model while the backbone is in use. The backbone cannot be loaded from a state file: pass it to
    `Adapter.restore`, which compares the weight hash. In single precision, the hash equals that of the model loaded by
    name.

    >>> from transformers import AutoProcessor, CLIPModel  # doctest: +SKIP
    >>> name = "openai/clip-vit-base-patch16"  # doctest: +SKIP
    >>> clip = from_transformers(CLIPModel.from_pretrained(name), AutoProcessor.from_pretrained(name))  # doctest: +SKIP
    """
    kind = getattr(getattr(model, "config", None), "model_type", None)
    if not isinstance(model, nn.Module) or not isinstance(kind, str):
        raise Error(
            f"A {type(model).__name__} is not a model of transformers: give a CLIPModel or a SiglipModel, or pass "
            "another image tower to `ostta.backbones.wrap`.",
            code="model-unsupported",
        )
    id = str(getattr(model, "name_or_path", "")) or type(model).__name__
    family = family_of(kind, id)
    parts = {"vision_model": model, "text_model": model, "logit_scale": model}
    for part, owner in {**parts, "tokenizer": processor, "image_processor": processor}.items():
        if not hasattr(owner, part):
            raise Error(
                f"A {type(owner).__name__} has no {part}: give the whole model, such as a CLIPModel, and its "
                "processor, as `AutoProcessor.from_pretrained` loads it.",
                code="model-unsupported",
            )
    usual = family.usual_preprocessing(image_side(model))
    preprocessing = check_preprocessing(processor.image_processor.to_dict(), usual, "The image processor")
    copied, device, precision = shared_copy(model)
    backbone = family(id, copied, processor.tokenizer, preprocessing)
    backbone.restorable = False
    backbone.device, backbone.dtype = device, precision
    for tower in (backbone.vision, backbone.text):
        run_in(tower, device, precision)
    return backbone
