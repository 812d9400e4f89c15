"""The files of a model on the hub, as a local folder."""

from __future__ import annotations

from pathlib import Path

from ..core.types import Error

# By name: the repositories also hold the same weights for other frameworks.
SMALL_FILES = (
    "config.json", "preprocessor_config.json", "processor_config.json", "tokenizer.json", "tokenizer_config.json",
    "special_tokens_map.json", "added_tokens.json", "vocab.json", "merges.txt", "spiece.model",
)  # fmt: skip
WEIGHTS = ("model.safetensors", "model.safetensors.index.json", "model-*.safetensors")
NEEDS_EXTRA = 'CLIP, SigLIP and the embedded model need transformers: install it with `pip install "ostta[clip]"`.'
OLDER_WEIGHTS = ("pytorch_model.bin", "pytorch_model.bin.index.json", "pytorch_model-*.bin")


def model_folder(name: str) -> Path:
    """The folder with the model's files: from the cache if they are all there, else downloaded."""
    try:
        from huggingface_hub.errors import HFValidationError, RepositoryNotFoundError
        from huggingface_hub.utils import httpx  # type: ignore[attr-defined]
    except ImportError as problem:
        raise Error(NEEDS_EXTRA) from problem
    try:
        cached = _cached(name)
        return _snapshot(name, local_files_only=False) if cached is None else cached
    except HFValidationError as problem:
        raise Error(f"There is no folder {name!r}, and it cannot be the id of a model on the hub.") from problem
    except RepositoryNotFoundError as problem:
        raise Error(f"There is no folder {name!r}, and no model of that id on the hub that you may read.") from problem
    except (OSError, httpx.HTTPError) as problem:
        raise Error(
            f"There is no folder {name!r}, the model is not in the cache, and the hub cannot be reached: "
            f"download it elsewhere with `hf download {name} --local-dir DIR` and pass DIR."
        ) from problem


def _snapshot(name: str, local_files_only: bool) -> Path:
    """The folder of the files that a backbone reads.

    The patterns are needed for the cache too: without them, the library takes a snapshot for incomplete as long as any file of the
    repository is missing, such as the weights for another framework.
    """
    from huggingface_hub import snapshot_download

    patterns = [*SMALL_FILES, *WEIGHTS]
    folder = Path(snapshot_download(name, allow_patterns=patterns, local_files_only=local_files_only))
    if not _has(folder, WEIGHTS):
        older = [*OLDER_WEIGHTS]
        folder = Path(snapshot_download(name, allow_patterns=older, local_files_only=local_files_only))
    return folder


def _cached(name: str) -> Path | None:
    """Asked first, so that a model that is here loads without a network and stays the same from run to run."""
    from huggingface_hub.errors import LocalEntryNotFoundError

    try:
        folder = _snapshot(name, local_files_only=True)
    except LocalEntryNotFoundError:
        return None
    whole = (
        _has(folder, ("config.json",))
        and _has(folder, ("preprocessor_config.json", "processor_config.json"))
        and _has(folder, ("tokenizer.json", "vocab.json", "spiece.model"))
        and _has(folder, (*WEIGHTS, *OLDER_WEIGHTS))
    )
    return folder if whole else None


def _has(folder: Path, patterns: tuple[str, ...]) -> bool:
    return any(True for pattern in patterns for _ in folder.glob(pattern))
