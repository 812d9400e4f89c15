"""A backbone that was exported for ONNX Runtime: an image tower without gradients, and the embeddings of some classes.

It serves methods that train nothing in the tower: zero_shot, tda, dpe, oga, onzeta.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import nn

from ..core.checks import shown
from ..core.types import Error
from .folders import short
from .onnx_files import Content, file_hash, read_content
from .prompts import checked_templates
from .protocol import DEFAULT_TEMPLATES

PREFIX = "onnx:"
INPUT, OUTPUT = "pixels", "features"
NEEDS_EXTRA = 'Backbones for ONNX Runtime need {}: install it with `pip install "ostta[onnx]"`.'


class OnnxTower(nn.Module):
    """Normalised images [B, 3, H, W] to raw features [B, D], through ONNX Runtime on the processor.

    With `one_by_one` the images of a batch pass one after the other: numbers of eight bits are scaled by the largest in the
    whole batch, so an image would be seen in another way beside other images.
    """

    def __init__(self, model: bytes, one_by_one: bool) -> None:
        super().__init__()
        self._session = _session(model)
        self._one_by_one = one_by_one

    def __deepcopy__(self, memo: dict[int, Any]) -> OnnxTower:
        # There is nothing in it that could be changed.
        return self

    def forward(self, pixels: torch.Tensor) -> torch.Tensor:
        given = pixels.detach().to("cpu", torch.float32).contiguous().numpy()
        parts = np.split(given, len(given)) if self._one_by_one else [given]
        found = [self._session.run([OUTPUT], {INPUT: part})[0] for part in parts]
        return torch.from_numpy(np.concatenate(found) if len(found) > 1 else found[0]).to(pixels.device)

    def check(self, image_size: int, width: int) -> None:
        """Refuse a model that does not make features of `width` numbers from images of `image_size` pixels."""
        ends = ((self._session.get_inputs(), INPUT), (self._session.get_outputs(), OUTPUT))
        for found, name in ends:
            if [(one.name, one.type) for one in found] != [(name, "tensor(float)")]:
                raise Error(f"the model must have one tensor {name!r} in single precision at that end")
        try:
            with torch.no_grad():
                features = self(torch.zeros(1, 3, image_size, image_size))
        except Exception as problem:  # of the library's own kinds
            raise Error(
                f"the model does not take images of {image_size} pixels ({short(problem).rstrip('.')})"
            ) from None
        if features.shape != (1, width):
            raise Error(
                f"the model gives {list(features.shape)} for one image, and the class embeddings ask for [1, {width}]"
            )
        if not bool(torch.isfinite(features).all()):
            raise Error("the model gives features that are not finite for a grey image")


class Onnx:
    """What `load("onnx:FOLDER")` returns. `about` is what the folder says of itself.

    The weight hash is of the files that compute, the model and the class embeddings, not of the backbone they were made from: a
    state goes on only where every number comes out the same.
    """

    restorable = True
    trainable = False
    device = torch.device("cpu")
    dtype = torch.float32

    def __init__(self, id: str, content: Content) -> None:
        self.id = id
        self.about = about = content.about
        tower = OnnxTower(content.model, one_by_one=about.precision == "int8")
        tower.check(about.preprocessing.image_size, content.text.shape[1])
        self.vision: nn.Module = tower.eval()
        self.preprocessing, self.logit_scale, self.remark = about.preprocessing, about.logit_scale, about.remark
        # The templates that the embeddings were made with are the only ones to be had.
        own = {"adapter": {**about.defaults.get("adapter", {}), "templates": list(about.templates)}}
        self.defaults: Mapping[str, Mapping[str, object]] = {**about.defaults, **(own if about.templates else {})}
        self.weight_hash = file_hash("\n".join(about.files[name] for name in sorted(about.files)).encode())
        self._text = content.text
        self._rows = {name: row for row, name in enumerate(about.classes)}

    @property
    def feature_width(self) -> int:
        return self._text.shape[1]

    def classifier(self, classes: Sequence[str], templates: Sequence[str] = DEFAULT_TEMPLATES) -> torch.Tensor:
        """The stored embeddings of `classes`, which must be among those of the export, in any order."""
        about = self.about
        if about.templates and checked_templates(templates) != about.templates:
            raise Error(
                f"{self.id} has class embeddings of the templates {shown(list(about.templates))}, and there is no text tower to "
                f"make others of {shown(list(templates))}: export it with those."
            )
        for name in classes:
            if name not in self._rows:
                raise Error(
                    f"{self.id} has no embedding of the class {shown(name)}, only of {shown(list(about.classes), 200)}: "
                    "export it with all classes that you need."
                )
        return self._text[[self._rows[name] for name in classes]]

    def unfamiliar(self, classes: Sequence[str]) -> list[str]:
        return [name for name in classes if name in self.about.unfamiliar]


def load_onnx(folder: Path) -> Onnx:
    """The backbone that `export` wrote to `folder`."""
    runtime()
    content = read_content(folder)
    try:
        return Onnx(f"{PREFIX}{folder}", content)
    except Error as problem:
        raise Error(f"The backbone in {folder} cannot be loaded: {str(problem).rstrip('.')}.") from None


def runtime() -> Any:
    """ONNX Runtime, or a sentence where it is not installed."""
    try:
        import onnxruntime
    except ImportError as problem:
        raise Error(NEEDS_EXTRA.format("onnxruntime")) from problem
    return onnxruntime


def _session(model: bytes) -> Any:
    onnxruntime = runtime()
    options = onnxruntime.SessionOptions()
    # As many as torch has, which follows OMP_NUM_THREADS.
    options.intra_op_num_threads = torch.get_num_threads()
    options.inter_op_num_threads = 1
    options.log_severity_level = 4  # what goes wrong is raised as well
    try:
        return onnxruntime.InferenceSession(model, options, providers=["CPUExecutionProvider"])
    except Exception as problem:  # of the library's own kinds
        raise Error(f"ONNX Runtime cannot read the model ({short(problem).rstrip('.')})") from None
