"""The recorded runs of the published code, reproduced image by image.

The first 150 images ship with the tests (tests/golden/README.md). All 900 are replayed where the full recording lies
beside the project. One code path checks both.
"""

from __future__ import annotations

import json
import subprocess
import sys
from functools import cache
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

import ostta
from helpers.paths import ROOT, TESTS
from ostta.evaluation import metrics

SHIPPED = TESTS / "golden"
FULL = ROOT.parent / "shared" / "golden" / "veil"
needs_full = pytest.mark.skipif(
    not FULL.exists(), reason="the full recording (../shared/golden) is not beside the project"
)
RECORDINGS = [
    pytest.param(SHIPPED, id="shipped"),
    # A whole recorded stream is replayed: (K+1)PC takes its first step after 500 images, and a small systematic
    # difference shows only late. It takes long, and is in every run all the same: the README's first claim rests on it.
    pytest.param(FULL, id="full", marks=[needs_full]),
]

RUNS: dict[str, tuple[str, dict[str, Any]]] = {
    "ZSEval": ("zero_shot", {}),
    "ROSITA": ("rosita", {}),
    "ROSITA-Re": ("rosita", {"losses": ("re",)}),
    "ROSITA-DU": ("rosita", {"losses": ("d", "u")}),
    "ROSITA-lr1m2": ("rosita", {"lr": 1e-2}),
    "PC": ("prototypes", {}),
    "Unient": ("unient", {}),
    "TDA": ("tda", {}),
    "DPE": ("dpe", {"gate": "reference"}),
}


@cache
def backbone(recording: Path):
    from transformers import CLIPVisionModelWithProjection

    tower = CLIPVisionModelWithProjection.from_pretrained(recording / "vision")
    text_features = torch.from_numpy(np.load(recording / "stream.npz")["text_features"])
    return ostta.backbones.wrap(tower, text_features, image_size=32, logit_scale=100.0)


@cache
def stream(recording: Path):
    stored = np.load(recording / "stream.npz")
    mean = torch.tensor([0.48145466, 0.4578275, 0.40821073])[:, None, None]
    std = torch.tensor([0.26862954, 0.26130258, 0.27577711])[:, None, None]
    views = torch.from_numpy(stored["views"]).permute(0, 1, 4, 2, 3)
    return [(v.float() / 255 - mean) / std for v in views], stored["labels"], [str(c) for c in stored["classes"]]


@cache
def traces(recording: Path) -> dict[str, Any]:
    return json.loads((recording / "traces.json").read_text(encoding="utf-8"))


def numbers(values) -> np.ndarray:
    """A recorded list; NaN where nothing was recorded, or "nan"."""
    return np.array([np.nan if v is None or v == "nan" else v for v in values], dtype=float)


def share(ok) -> float:
    return float(np.mean(ok))


@pytest.mark.parametrize("name", RUNS)
@pytest.mark.parametrize("recording", RECORDINGS)
def test_recorded_run_is_reproduced(recording: Path, name: str) -> None:
    method, options = RUNS[name]
    recorded = traces(recording)[name]
    views, labels, classes = stream(recording)
    adapter = ostta.load(backbone(recording), classes, method=method, profile="reference", seed=0, **options)
    predictions = [adapter.step_views(v) for v in views]

    def ours(field):
        return np.array([getattr(p, field) for p in predictions], dtype=float)

    def theirs(field):
        return numbers(recorded[field])

    wide = method in ("tda", "dpe")  # scores on the scale of the logits

    accepted = theirs("accept").astype(bool)
    assert share(np.abs(ours("score") - theirs("score")) < (2e-2 if wide else 2e-4)) >= 0.99
    assert share(np.abs(ours("threshold") - theirs("threshold")) < 1e-6) >= 0.995
    assert share(ours("known").astype(bool) == accepted) >= 0.998
    assert share((ours("index") == theirs("pred"))[accepted]) >= 0.99
    both = ~np.isnan(theirs("loss"))
    assert (both == ~np.isnan(ours("loss"))).mean() >= 0.99
    if both.any() and method != "dpe":
        assert share(np.abs(ours("loss") - theirs("loss"))[both] < 1e-3) >= 0.99
    # The published code counts losses. A recorded loss of "nan" is a step that moved nothing: ours skips it.
    skipped = sum(value == "nan" for value in recorded["loss"])
    assert abs(sum(p.loss is not None for p in predictions) + skipped - recorded["updates"]) <= 0.002 * len(views)
    for ours_mu, their_mu in (("mu_undesired", "mu_u"), ("mu_desired", "mu_d")):
        if recorded[their_mu] is not None:
            assert share(np.abs(ours(ours_mu) - theirs(their_mu)) < 2e-4) >= 0.99

    # The bounds above are wide beside what few steps at a small rate move. So the scores must also be where adaptation
    # brought them: nearer to the recorded ones than a tenth of the way that these went from the frozen run's.
    frozen = numbers(traces(recording)["ZSEval"]["score"]) * (100 if wide else 1)
    if recorded["updates"] or wide:
        way = np.linalg.norm(theirs("score") - frozen)
        assert np.linalg.norm(ours("score") - theirs("score")) < 0.1 * way
    else:
        assert np.abs(ours("score") - frozen).max() < 1e-6

    figures = metrics.summary(labels, ours("score"), ours("known").astype(bool), ours("index").astype(int))
    names = {"AUC": "auroc", "FPR95": "fpr95", "ACC_D": "acc_desired", "ACC_U": "acc_undesired", "ACC_HM": "hm"}
    for their_name, our_name in names.items():
        assert figures[our_name] == pytest.approx(100 * recorded["metrics"][their_name], abs=0.5), our_name
    # The norm was recorded at the end of all 900 images only.
    if recording == FULL and hasattr(adapter.state, "overlay"):
        norm = float(torch.stack([t.detach().norm() ** 2 for t in adapter.state.overlay.parameters()]).sum().sqrt())
        assert norm == pytest.approx(recorded["layernorm_norm"], rel=1e-4)


def test_what_the_shipped_recording_exercises() -> None:
    """Both kinds of reliable images, both losses of ROSITA.

    No step of (K+1)PC, which waits for 500 images as published.
    """
    recorded = traces(SHIPPED)
    _, labels, classes = stream(SHIPPED)
    assert len(labels) == 150
    assert (labels < 0).sum() == 71
    assert set(labels[labels >= 0]) == set(range(len(classes)))
    assert {name: run["updates"] for name, run in recorded.items()} == {
        "ZSEval": 0,
        "ROSITA": 49,
        "ROSITA-Re": 25,
        "ROSITA-DU": 44,
        "ROSITA-lr1m2": 50,
        "PC": 0,
        "Unient": 150,
        "TDA": 0,  # trains nothing; its caches show in the scores
        "DPE": 150,
    }
    assert ostta.methods.METHODS["prototypes"].Options().wait == 500
    run = recorded["ROSITA"]
    score, accepted = numbers(run["score"]), np.array(run["accept"])
    reliable_desired = accepted & (score > numbers(run["mu_d"]))
    reliable_undesired = ~accepted & (score < numbers(run["mu_u"]))
    stepped = ~np.isnan(numbers(run["loss"]))
    assert (reliable_desired.sum(), reliable_undesired.sum()) == (25, 37)
    assert stepped[reliable_desired].all()  # L_Re, and L_D once both banks are filled
    assert stepped[reliable_undesired].sum() == 24  # L_U, once both banks are filled
    assert not stepped[~reliable_desired & ~reliable_undesired].any()


@needs_full
def test_the_shipped_recording_is_what_the_tool_cuts_from_the_full_one(tmp_path: Path) -> None:
    command = [sys.executable, str(ROOT / "tools" / "cut_golden.py"), "--from", str(FULL), "--to", str(tmp_path)]
    subprocess.run(command, check=True, capture_output=True)
    assert traces(tmp_path) == traces(SHIPPED)
    for name in ("config.json", "model.safetensors"):
        assert (tmp_path / "vision" / name).read_bytes() == (SHIPPED / "vision" / name).read_bytes()
    with np.load(tmp_path / "stream.npz") as cut, np.load(SHIPPED / "stream.npz") as shipped:
        assert cut.files == shipped.files
        for key in cut.files:
            np.testing.assert_array_equal(cut[key], shipped[key])


def test_the_shipped_recording_is_small() -> None:
    assert sum(path.stat().st_size for path in SHIPPED.rglob("*") if path.is_file()) <= 6_000_000
