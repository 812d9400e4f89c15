"""Predictions as JSON for the API."""

from __future__ import annotations

from typing import Any

from ..core.types import Prediction
from .sessions.points import finite


def to_json(prediction: Prediction, step: int, evidence: bool) -> dict[str, Any]:
    """Return `Prediction.to_dict()` with the step. Numbers are finite or null; scores of all classes are included with `evidence`.

    `class_probabilities` are included if the session has that option.
    """
    content: dict[str, Any] = {
        "step": step,
        "label": prediction.label,
        "index": prediction.index,
        "known": prediction.known,
        "score": finite(prediction.score),
        "threshold": finite(prediction.threshold),
        "mu_desired": finite(prediction.mu_desired),
        "mu_undesired": finite(prediction.mu_undesired),
        "verdict": None if prediction.verdict is None else prediction.verdict.value,
        "adapted": prediction.adapted,
        "loss": finite(prediction.loss),
        "reason": prediction.reason,
        "best": prediction.best,
        "ms": {
            "encode": round(prediction.ms.encode, 3),
            "decide": round(prediction.ms.decide, 3),
            "update": round(prediction.ms.update, 3),
        },
        "class_scores": None,
        "pseudo_label": prediction.pseudo_label,
        "diagnostics": {name: finite(value) for name, value in prediction.diagnostics.items()},
        "evidence": {name: finite(value) for name, value in prediction.evidence.items()},
        "warming_up": prediction.warming_up,
        "events": [event.to_dict() for event in prediction.events],
        "probability": finite(prediction.probability),
        "undecided": prediction.undecided,
        "explanation": prediction.explanation,
        "class_probabilities": None,
    }
    if prediction.class_probabilities is not None:
        content["class_probabilities"] = {name: finite(value) for name, value in prediction.class_probabilities.items()}
    if evidence and prediction.class_scores is not None:
        content["class_scores"] = {name: finite(value) for name, value in prediction.class_scores.items()}
    if prediction.features is not None:
        content["features"] = [finite(value) for value in prediction.features]
    return content
