"""JSON schemas of what the API takes and gives, with examples."""

from __future__ import annotations

from typing import Any

Schema = dict[str, Any]

TEXT: Schema = {"type": "string"}
WHOLE: Schema = {"type": "integer", "minimum": 0}
NUMBER: Schema = {"type": ["number", "null"]}
FLAG: Schema = {"type": "boolean"}
TEXT_OR_NONE: Schema = {"type": ["string", "null"]}
ID: Schema = {"type": "string", "pattern": "^[0-9a-f]{32}$"}


def listed(of: Schema, **more: Any) -> Schema:
    """A list of such values."""
    return {"type": "array", "items": of, **more}


def by_name(of: Schema) -> Schema:
    """Such values by name."""
    return {"type": "object", "additionalProperties": of}


def record(required: bool = True, **fields: Schema) -> Schema:
    """An object with these fields; all of them are there, unless `required` is false."""
    found: Schema = {"type": "object", "properties": fields}
    return {**found, "required": list(fields)} if required else found


def named(name: str) -> Schema:
    """One of `SCHEMAS`."""
    return {"$ref": f"#/components/schemas/{name}"}


EXAMPLE_ID = "5f1c0b6a9d3e4f708192a3b4c5d6e7f8"
EVENT_EXAMPLE = {"kind": "freeze", "sentence": "Frozen by hand.", "evidence": {}}
SESSION_EXAMPLE: Schema = {
    "id": EXAMPLE_ID, "name": "door", "classes": ["cat", "dog"], "method": "zero_shot", "score": "field", "identifier": "field",
    "profile": "field", "guard": True, "steps": 120, "images": 121, "accepted": 70, "rejected": 50, "refused": 1, "undecided": 32,
    "accepted_share": 0.6,
    "images_per_second": 2.5, "frozen": False, "guard_light": "green", "warming_up": False, "class_counts": {"cat": 40, "dog": 30},
    "sparkline": [None] * 26 + [0.5, 0.6, 0.65, 0.55], "created": 1780000000.0, "last_image": 1780000060.5, "saved_steps": 100, "problem": None,
    "unfamiliar": [],
}  # fmt: skip
PREDICTION_EXAMPLE: Schema = {
    "step": 121, "label": "cat", "index": 0, "known": True, "score": 3.5, "threshold": 0.0, "mu_desired": None, "mu_undesired": None,
    "verdict": "reliable_desired", "adapted": False, "loss": None, "reason": "zero_shot trains no parameters", "best": "cat",
    "ms": {"encode": 3.1, "decide": 0.4, "update": 0.2}, "class_scores": None, "pseudo_label": 0, "diagnostics": {},
    "evidence": {"fit": 3.1, "known_neighbours": 0.9, "neighbours": 10.0}, "warming_up": False, "events": [], "probability": 0.97, "undecided": False,
    "explanation": "Fits cat better than chance by 3.1 deviations; 9 of its 10 nearest recent images were known.", "class_probabilities": None,
}  # fmt: skip
POINT_EXAMPLE = {
    "step": 121, "time": 1780000060.5, "score": 3.5, "threshold": 0.0, "mu_desired": None, "mu_undesired": None, "known": True,
    "label": "cat", "best": "cat", "warming_up": False, "probability": 0.97, "undecided": False, "accept": 0.5,
}  # fmt: skip
PROBLEM_EXAMPLE = {
    "type": "/problems/not-found", "title": "Not found", "status": 404, "detail": f"There is no session '{EXAMPLE_ID}'.",
    "request_id": "c7b718c371c88a62",
}  # fmt: skip

SCHEMAS: dict[str, Schema] = {
    "NewSession": {
        "type": "object",
        "properties": {
            "classes": {
                "anyOf": [
                    listed({"type": "string", "minLength": 1, "maxLength": 500}, minItems=1),
                    {**by_name(listed({"type": "string", "minLength": 1, "maxLength": 500}, maxItems=32)), "minProperties": 1},
                ]
            },
            "name": {"type": "string", "minLength": 1, "maxLength": 200},
            "method": TEXT,
            "score": TEXT,
            "identifier": TEXT,
            "profile": {"enum": ["field", "reference", "paper"]},
            "seed": {"type": "integer"},
            "guard": {"type": "boolean", "default": True},
            "options": {
                "type": "object",
                "properties": {
                    "accept": {
                        "description": "Smallest probability with which an image is answered as known: for all classes, by class, or as texts.",
                        "anyOf": [
                            {"type": "number", "minimum": 0, "maximum": 1},
                            by_name({"type": "number", "minimum": 0, "maximum": 1}),
                            TEXT,
                            listed(TEXT),
                        ],
                    },
                    "class_probabilities": FLAG,
                },
            },
        },
        "required": ["classes"],
        "additionalProperties": False,
        "examples": [{"classes": ["cat", "dog"], "name": "door"}, {"classes": {"cat": ["a kitten"], "dog": []}, "method": "tda"},
                     {"classes": ["cat", "person"], "options": {"accept": {"person": 0.9}, "class_probabilities": True}}],
    },
    "Event": {**record(kind=TEXT, sentence=TEXT, evidence=by_name(NUMBER)), "examples": [EVENT_EXAMPLE]},
    "Session": {
        **record(
            id=ID, name=TEXT, classes=listed(TEXT), method=TEXT, score=TEXT, identifier=TEXT, profile=TEXT, guard=FLAG, steps=WHOLE, images=WHOLE,
            accepted=WHOLE, rejected=WHOLE, refused=WHOLE, undecided=WHOLE, accepted_share=NUMBER, images_per_second={"type": "number"}, frozen=FLAG,
            guard_light={"enum": ["off", "green", "amber", "red"]}, warming_up=FLAG, class_counts=by_name(WHOLE), sparkline=listed(NUMBER),
            created={"type": "number"}, last_image=NUMBER, saved_steps=WHOLE, problem=TEXT_OR_NONE, unfamiliar=listed(TEXT),
        ),
        "examples": [SESSION_EXAMPLE],
    },
    "Prediction": {
        **record(
            step=WHOLE, label=TEXT_OR_NONE, index={"type": "integer"}, known=FLAG, score=NUMBER, threshold=NUMBER, mu_desired=NUMBER,
            mu_undesired=NUMBER, verdict=TEXT_OR_NONE, adapted=FLAG, loss=NUMBER, reason=TEXT_OR_NONE, best=TEXT_OR_NONE, ms=by_name({"type": "number"}),
            class_scores={"type": ["object", "null"], "additionalProperties": NUMBER}, pseudo_label={"type": "integer"},
            diagnostics=by_name(NUMBER), evidence=by_name(NUMBER), warming_up=FLAG, events=listed(named("Event")),
            probability=NUMBER, undecided=FLAG, explanation=TEXT_OR_NONE,
            class_probabilities={"type": ["object", "null"], "additionalProperties": NUMBER},
        ),
        "examples": [PREDICTION_EXAMPLE],
    },
    "Predictions": {
        **record(predictions=listed({"anyOf": [named("Prediction"), record(problem=named("Problem"))]})),
        "examples": [{"predictions": [PREDICTION_EXAMPLE]}],
    },
    "Point": {
        **record(
            step=WHOLE, time={"type": "number"}, score=NUMBER, threshold=NUMBER, mu_desired=NUMBER, mu_undesired=NUMBER, known=FLAG,
            label=TEXT_OR_NONE, best=TEXT_OR_NONE, warming_up=FLAG, probability=NUMBER, undecided=FLAG, accept=NUMBER,
        ),
        "examples": [POINT_EXAMPLE],
    },
    "Recent": {
        **record(
            points=listed(named("Point")),
            events=listed(record(step=WHOLE, time={"type": "number"}, kind=TEXT, sentence=TEXT, evidence=by_name(NUMBER))),
        ),
        "examples": [{"points": [POINT_EXAMPLE], "events": [{"step": 121, "time": 1780000060.5, **EVENT_EXAMPLE}]}],
    },
    "Problem": {
        "type": "object",
        "properties": {"type": TEXT, "title": TEXT, "status": WHOLE, "detail": TEXT, "request_id": TEXT},
        "required": ["type", "title", "status", "detail"],
        "examples": [PROBLEM_EXAMPLE],
    },
}  # fmt: skip
# Only in an answer that was given before, to the same idempotency key.
SCHEMAS["Prediction"]["properties"]["repeated"] = FLAG
