"""Folders of exported backbones: with damage to any file, and with content changed on purpose, the hashes right again.

The model itself is never changed with its hash made right: whether ONNX Runtime survives any model is not ours to
promise.
"""

from __future__ import annotations

import base64
import json
import random
from pathlib import Path
from typing import Any

import torch
from safetensors.torch import save as save_tensors

import onnx
import ostta
from onnx import TensorProto, helper
from ostta.backbones.onnx import DESCRIPTION, FEATURES, FILES, INPUT, MODEL, OUTPUT, TEXT, file_hash, load_onnx, seal
from ostta.backbones.onnx_schema import Exported, PreprocessingModel
from ostta.backbones.preprocessing import clip_preprocessing

from .engine import Kind, PromiseError
from .mutate import damaged, damaged_tree, json_text

CLASSES, SIZE, WIDTH = ("cat", "dog", "ship"), 8, 4


class Exports(Kind):
    """A backbone that loads can be used. Without a deliberate change, it equals the one that was written."""

    def __init__(self) -> None:
        torch.manual_seed(0)
        text = torch.nn.functional.normalize(torch.randn(len(CLASSES), WIDTH))
        self.files = {MODEL: _model(), TEXT: save_tensors({FEATURES: text})}
        about = Exported(
            backbone="wrapped",
            weight_hash="0" * 64,
            precision="float32",
            preprocessing=PreprocessingModel.of(clip_preprocessing(SIZE)),
            logit_scale=100.0,
            classes=CLASSES,
            templates=("a photo of a {}.",),
            defaults={"lda": {"search": "exact"}},
            remark="",
            unfamiliar=("ship",),
            largest_difference=1e-7,
            versions={"torch": torch.__version__},
            files={name: file_hash(content) for name, content in self.files.items()},
        )
        self.files[DESCRIPTION] = about.to_json().encode()

    def mutation(self, rng: random.Random) -> bytes:
        files = dict(self.files)
        about = json.loads(files[DESCRIPTION])
        match rng.randrange(3):
            case 0:
                name = rng.choice(list(files))
                files[name] = damaged(files[name], rng, list(files.values()))
            case 1:
                files[DESCRIPTION] = _sealed(damaged_tree(about, rng))
            case _:
                files[TEXT] = damaged(files[TEXT], rng)
                files[DESCRIPTION] = _sealed({**about, "files": {name: file_hash(files[name]) for name in FILES}})
        return json.dumps({name: base64.b64encode(content).decode() for name, content in files.items()}).encode()

    def place(self, content: bytes, folder: Path) -> None:
        (folder / "input").mkdir()
        for name, encoded in json.loads(content).items():
            (folder / "input" / name).write_bytes(base64.b64decode(encoded))

    def target(self, folder: Path) -> None:
        model = load_onnx(folder / "input")
        size = model.preprocessing.image_size
        if not bool(torch.isfinite(model.vision(torch.zeros(2, 3, size, size))).all()):
            raise PromiseError("a backbone was loaded whose features are not finite")
        if not bool(torch.isfinite(model.classifier(model.about.classes, model.about.templates)).all()):
            raise PromiseError("a backbone was loaded whose class embeddings are not finite")
        # Defaults are options: those that no option takes are refused here.
        one = ostta.load(model, model.about.classes, method="zero_shot")
        one.step_views(torch.zeros(1, 3, size, size)).to_json()


def _model() -> bytes:
    dense = helper.make_tensor(
        "dense", TensorProto.FLOAT, (3 * SIZE * SIZE, WIDTH), torch.randn(3 * SIZE * SIZE * WIDTH)
    )
    bias = helper.make_tensor("bias", TensorProto.FLOAT, (WIDTH,), [1.0] * WIDTH)
    nodes = [
        helper.make_node("Flatten", [INPUT], ["flat"]),
        helper.make_node("Gemm", ["flat", "dense", "bias"], [OUTPUT]),
    ]
    ends = [
        [helper.make_tensor_value_info(name, TensorProto.FLOAT, shape)]
        for name, shape in ((INPUT, ["batch", 3, SIZE, SIZE]), (OUTPUT, ["batch", WIDTH]))
    ]
    graph = helper.make_graph(nodes, "tower", *ends, [dense, bias])
    made: bytes = helper.make_model(
        graph, opset_imports=[helper.make_opsetid("", 20)], ir_version=10
    ).SerializeToString()
    onnx.checker.check_model(onnx.load_from_string(made))
    return made


def _sealed(about: Any) -> bytes:
    if isinstance(about, dict):
        about.pop("sha256", None)
        about["sha256"] = seal(about)
    return json_text(about).encode("utf-8", "surrogatepass")
