"""Backbones exported for ONNX Runtime: an image tower without gradients, and the embeddings of fixed classes.

They support methods that do not train the tower: zero_shot, tda, dpe, oga, onzeta. Files of an exported backbone:

ostta.json          description (`Exported`): origin, preprocessing, classes, and a SHA-256 of every file
model.onnx          image tower: `pixels` [batch, 3, H, W] to `features` [batch, D]
text.safetensors    `text_features` [classes, D], unit length
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import torch
from torch import nn

from ..core.checks import UNIT_TOLERANCE, shown
from ..core.errors import error_context, import_extra, translate_errors
from ..core.types import Error
from ..io import read_regular
from .prompts import check_templates
from .protocol import DEFAULT_TEMPLATES

if TYPE_CHECKING:
    from ..feature_files import Metadata
    from .onnx_schema import Exported

PREFIX = "onnx:"
FORMAT = 1
DESCRIPTION, MODEL, TEXT = "ostta.json", "model.onnx", "text.safetensors"
FILES = (MODEL, TEXT)
# Names of the tensors in the two files.
INPUT, OUTPUT, FEATURES = "pixels", "features", "text_features"
# Entry of the description with the hash of all other entries.
SEAL = "sha256"


class OnnxTower(nn.Module):
    """Image tower in ONNX Runtime on the CPU, from normalised images [B, 3, H, W] to raw features [B, D].

    With `one_by_one`, each image is processed separately. Eight-bit models require this: they scale their inputs by the
    largest value of the batch, so in a batch the features of an image would depend on the other images.
    """

    def __init__(self, model: bytes, one_by_one: bool) -> None:
        super().__init__()
        self._session = _session(model)
        self._one_by_one = one_by_one

    def __deepcopy__(self, memo: dict[int, Any]) -> OnnxTower:
        # The tower is immutable, so the copy can share it.
        return self

    def forward(self, pixels: torch.Tensor) -> torch.Tensor:
        images = pixels.detach().to("cpu", torch.float32).contiguous().numpy()
        parts = np.split(images, len(images)) if self._one_by_one else [images]
        outputs = [self._session.run([OUTPUT], {INPUT: part})[0] for part in parts]
        return torch.from_numpy(np.concatenate(outputs) if len(outputs) > 1 else outputs[0]).to(pixels.device)

    def check(self, image_size: int, width: int) -> None:
        """Raise an Error unless the model maps images of `image_size` pixels to `width` features."""
        inputs, outputs = self._session.get_inputs(), self._session.get_outputs()
        for kind, tensors, name in (("input", inputs, INPUT), ("output", outputs, OUTPUT)):
            if [(tensor.name, tensor.type) for tensor in tensors] != [(name, "tensor(float)")]:
                raise Error(f"The only {kind} of the model must be the float tensor {name!r}.", code="backbone-damaged")
        message = f"The model does not accept images of {image_size} pixels ({{reason}})."
        with torch.no_grad(), translate_errors("backbone-damaged", message):
            features = self(torch.zeros(1, 3, image_size, image_size))
        if features.shape != (1, width) or not bool(torch.isfinite(features).all()):
            raise Error(
                f"The model returns {list(features.shape)} for one grey image; the class embeddings require finite "
                f"features of shape [1, {width}].",
                code="backbone-damaged",
            )


class StoredClasses:
    """Base of backbones without a text tower, which have stored embeddings of some classes.

    `stored` has the templates of the embeddings, the recommended options, and the classes outside the vocabulary.
    `command` is the command that stores embeddings, for messages.
    """

    restorable = True
    trainable = False
    dtype = torch.float32
    id: str
    command: str

    def __init__(self, stored: Exported | Metadata, rows: Mapping[str, torch.Tensor]) -> None:
        self._stored, self._rows = stored, rows
        self.defaults: Mapping[str, Mapping[str, object]] = stored.defaults
        if stored.templates:
            # The stored embeddings were computed with these templates.
            adapter = {**stored.defaults.get("adapter", {}), "templates": list(stored.templates)}
            self.defaults = {**stored.defaults, "adapter": adapter}

    def classifier(self, classes: Sequence[str], templates: Sequence[str] = DEFAULT_TEMPLATES) -> torch.Tensor:
        """Return the stored embeddings of `classes`; raise an Error if a class or the templates are not stored."""
        stored = tuple(self._stored.templates)
        if stored and check_templates(templates) != stored:
            raise Error(
                f"{self.id} has embeddings of the templates {shown(list(stored))} and no text tower for "
                f"{shown(list(templates))}: {self.command} it again with these templates.",
                code="templates-not-stored",
            )
        for name in classes:
            if name not in self._rows:
                raise Error(
                    f"{self.id} has no embedding of the class {shown(name)}, only of {shown(list(self._rows), 200)}: "
                    f"{self.command} it again with all classes that you need.",
                    code="class-not-stored",
                )
        return torch.stack([self._rows[name] for name in classes])

    def encode_words(self, names: Sequence[str]) -> Mapping[str, torch.Tensor]:
        """Return the stored embedding of each name that has one."""
        return {name: self._rows[name] for name in names if name in self._rows}

    def unfamiliar(self, classes: Sequence[str]) -> list[str]:
        return [name for name in classes if name in self._stored.unfamiliar]


class Onnx(StoredClasses):
    """Backbone returned by `load("onnx:FOLDER")`. `about` is its description.

    The weight hash covers the exported files, not the original backbone, so a state can be restored only with identical
    features.
    """

    command = "export"
    device = torch.device("cpu")

    def __init__(self, id: str, content: ExportedFiles) -> None:
        self.id = id
        self.about = about = content.about
        self.preprocessing, self.logit_scale, self.remark = about.preprocessing.build(), about.logit_scale, about.remark
        tower = OnnxTower(content.model, one_by_one=about.precision == "int8")
        tower.check(self.preprocessing.image_size, content.text.shape[1])
        self.vision: nn.Module = tower.eval()
        self.weight_hash = file_hash("\n".join(about.files[name] for name in sorted(about.files)).encode())
        self.feature_width = content.text.shape[1]
        super().__init__(about, dict(zip(about.classes, content.text, strict=True)))


@dataclass(frozen=True)
class ExportedFiles:
    """Verified content of an export folder. `model` contains the bytes that were hashed."""

    about: Exported
    model: bytes
    text: torch.Tensor


def load_onnx(folder: Path) -> Onnx:
    """Load the backbone that `export` wrote to `folder`."""
    require_runtime()
    content = read_exported(folder)
    with error_context(f"The backbone in {folder} cannot be loaded"):
        return Onnx(f"{PREFIX}{folder}", content)


def read_exported(folder: Path) -> ExportedFiles:
    """Read and verify the files of an exported backbone. Raise an Error if a file is missing or damaged."""
    if not folder.is_dir():
        raise Error(f"There is no folder {str(folder)!r}.", code="backbone-not-found")
    if not is_exported(folder):
        raise Error(
            f"The folder {folder} has no exported backbone: {DESCRIPTION} is missing. `ostta backbone export` writes "
            "one.",
            code="backbone-not-found",
        )
    with error_context(f"The backbone in {folder} cannot be loaded"):
        about = _read_description(read_regular(folder / DESCRIPTION, "description"))
        model, text = (_read_hashed(folder / name, about.files[name]) for name in FILES)
        return ExportedFiles(about, model, _read_text(text, len(about.classes)))


def is_exported(folder: Path) -> bool:
    """Return whether `folder` contains an exported backbone."""
    return (folder / DESCRIPTION).is_file()


def file_hash(content: bytes) -> str:
    """Return the SHA-256 of `content` in hexadecimal."""
    return hashlib.sha256(content).hexdigest()


def seal(content: Mapping[str, Any]) -> str:
    """Return the hash of the entries of a description."""
    return file_hash(json.dumps(content, sort_keys=True).encode())


def require_runtime() -> Any:
    """Import ONNX Runtime, or raise an Error with the command that installs it."""
    return import_extra("onnxruntime", "A backbone for ONNX Runtime", "onnx")


# --- reading the files ------------------------------------------------------------------------------------------------
def _read_hashed(file: Path, expected: str) -> bytes:
    content = read_regular(file, "file")
    if file_hash(content) != expected:
        raise Error(f"The hash of {file.name} is wrong: export the backbone again.", code="backbone-damaged")
    return content


def _read_description(content: bytes) -> Exported:
    from ..schema import parse_object, validate
    from .onnx_schema import Exported

    with error_context(DESCRIPTION):
        fields = parse_object(content)
        number, expected = fields.pop("format", None), fields.pop(SEAL, None)
        if type(number) is not int or number != FORMAT:
            raise Error(
                f"The file has format {shown(number)}, and this version reads format {FORMAT}: use the version of "
                "ostta that wrote it, or export the backbone again.",
                code="backbone-format-unknown",
            )
        if expected != seal({"format": number, **fields}):
            raise Error("The hash of the description is wrong: export the backbone again.", code="backbone-damaged")
        return validate(Exported, fields)


def _read_text(content: bytes, classes: int) -> torch.Tensor:
    from safetensors.torch import load

    with translate_errors("backbone-damaged", f"{TEXT} cannot be read ({{reason}})."):
        tensors = load(content)
    text = tensors.get(FEATURES)
    if text is None or len(tensors) > 1:
        raise Error(f"{TEXT} must have exactly one tensor, {FEATURES!r}.", code="backbone-damaged")
    if text.dtype != torch.float32 or text.ndim != 2 or len(text) != classes or not text.numel():
        raise Error(
            f"{FEATURES} is {str(text.dtype).removeprefix('torch.')} of shape {list(text.shape)}: "
            f"it must be float32 with one row for each of {classes} classes.",
            code="backbone-damaged",
        )
    if not bool(((text.norm(dim=1) - 1).abs() <= UNIT_TOLERANCE).all()):  # also catches NaN
        raise Error(f"A row of {FEATURES} does not have length one.", code="backbone-damaged")
    return text


def _session(model: bytes) -> Any:
    runtime = require_runtime()
    options = runtime.SessionOptions()
    # Use the thread count of torch, which follows OMP_NUM_THREADS.
    options.intra_op_num_threads = torch.get_num_threads()
    options.inter_op_num_threads = 1
    options.log_severity_level = 4  # errors are raised as exceptions, so they need not be logged
    with translate_errors("backbone-damaged", "ONNX Runtime cannot read the model ({reason})."):
        return runtime.InferenceSession(model, options, providers=["CPUExecutionProvider"])
