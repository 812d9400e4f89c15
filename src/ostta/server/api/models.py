"""Models of request bodies and answers. They validate what clients send, and describe the API in OpenAPI."""

from __future__ import annotations

from typing import Annotated, Any, Literal, TypeVar

from pydantic import BaseModel, BeforeValidator, ConfigDict, Field, ValidationError
from pydantic.json_schema import SkipJsonSchema, WithJsonSchema

from ...config.declare import PROFILES
from ...core.checks import shown
from ..problems import ProblemError
from ..sessions.names import MOST_NAME, MOST_TEXT, checked_classes, checked_name

M = TypeVar("M", bound=BaseModel)
MOST_DESCRIPTIONS = 32
# Maximum number of values of a feature.
MOST_FEATURES = 65536
EXAMPLE_ID = "5f1c0b6a9d3e4f708192a3b4c5d6e7f8"

Id = Annotated[str, Field(pattern="^[0-9a-f]{32}$")]
Count = Annotated[int, Field(ge=0)]
Number = float | None
Feature = Annotated[float, Field(ge=-1e30, le=1e30, allow_inf_nan=False)]
Text = Annotated[str, Field(min_length=1, max_length=MOST_TEXT)]
_NAME_SCHEMA = {"type": "string", "minLength": 1, "maxLength": MOST_NAME}
SessionName = Annotated[str, BeforeValidator(checked_name), WithJsonSchema(_NAME_SCHEMA)]
Profile = Annotated[Text, WithJsonSchema({"enum": list(PROFILES)})]
_PROBABILITY = {"type": "number", "minimum": 0, "maximum": 1}
# The options that most sessions need; `GET /info` lists all of them.
_OPTIONS = {
    "accept": {
        "description": "Smallest probability of a known image: for all classes, by class, or as texts.",
        "anyOf": [
            _PROBABILITY,
            {"type": "object", "additionalProperties": _PROBABILITY},
            {"type": "string"},
            {"type": "array", "items": {"type": "string"}},
        ],
    },
    "class_probabilities": {"type": "boolean"},
}
ClassNames = Annotated[list[Text], Field(min_length=1)]
Descriptions = Annotated[dict[Text, Annotated[list[Text], Field(max_length=MOST_DESCRIPTIONS)]], Field(min_length=1)]
# A field that may be null or missing, and is described without null.
Optional = SkipJsonSchema[None]


class Request(BaseModel):
    """A body that a client sends: no other fields, no conversion of types."""

    model_config = ConfigDict(extra="forbid", strict=True)


def parsed(model: type[M], content: dict[str, Any]) -> M:
    """Validate a body, or raise a problem whose sentence names the first field that is wrong."""
    try:
        return model.model_validate(content)
    except ValidationError as problem:
        first = problem.errors(include_url=False)[0]
        field = str(first["loc"][0])
        if first["type"] == "extra_forbidden":
            sentence = f"There is no field {shown(field)}; there are {', '.join(model.model_fields)}."
        elif first["type"] == "missing":
            sentence = f"The field `{field}` is missing."
        else:
            message = str(first["msg"])
            given = "" if ", not " in message else f", not {shown(first['input'])}"
            sentence = f"`{field}`: {message[:1].lower()}{message[1:]}{given}."
        raise ProblemError(422, sentence, code="request-invalid") from None


# --- requests ---------------------------------------------------------------------------------------------------------
class NewSession(Request):
    """What `POST /sessions` takes."""

    model_config = ConfigDict(
        json_schema_extra={
            "examples": [
                {"classes": ["cat", "dog"], "name": "door"},
                {"classes": {"cat": ["a kitten"], "dog": []}, "method": "tda"},
                {"classes": ["cat", "person"], "options": {"accept": {"person": 0.9}, "class_probabilities": True}},
            ]
        }
    )

    classes: Annotated[ClassNames | Descriptions, BeforeValidator(checked_classes)]
    # None comes first, because the check of a name would refuse it.
    name: Optional | SessionName = None
    method: Text | Optional = None
    score: Text | Optional = None
    identifier: Text | Optional = None
    profile: Profile | Optional = None
    seed: int | Optional = None
    guard: bool | Optional = True
    options: Annotated[dict[str, Any], Field(json_schema_extra={"properties": _OPTIONS})] | Optional = None


class Rename(Request):
    """What `PATCH /sessions/ID` takes."""

    name: SessionName


class Login(Request):
    """What `POST /login` takes."""

    token: str


class ImagesInJson(Request):
    """Images in base64."""

    images: Annotated[list[Annotated[str, Field(json_schema_extra={"contentEncoding": "base64"})]], Field(min_length=1)]


class FeaturesInJson(Request):
    """Features of images."""

    features: Annotated[
        list[Annotated[list[Feature], Field(min_length=1, max_length=MOST_FEATURES)]], Field(min_length=1)
    ]


# --- answers ----------------------------------------------------------------------------------------------------------
class Status(BaseModel):
    """Whether the server works."""

    status: str


class Event(BaseModel):
    """Something that the guard, the store or a person did."""

    kind: str
    sentence: str
    evidence: dict[str, Number]


class PastEvent(Event):
    """An event with its step and time."""

    step: Count
    time: float


class Session(BaseModel):
    """A session as it is now."""

    id: Id
    name: str
    classes: list[str]
    method: str
    score: str
    identifier: str
    profile: str
    guard: bool
    steps: Count
    images: Count
    accepted: Count
    rejected: Count
    refused: Count
    undecided: Count
    accepted_share: Number
    images_per_second: float
    frozen: bool
    guard_light: Literal["off", "green", "amber", "red"]
    warming_up: bool
    class_counts: dict[str, Count]
    sparkline: list[Number]
    created: float
    last_image: Number
    saved_steps: Count
    problem: str | None
    unfamiliar: list[str]


class Sessions(BaseModel):
    """All sessions that a token may use."""

    sessions: list[Session]


class Acted(BaseModel):
    """The event of an action, and the session afterwards."""

    event: Event
    session: Session


class Prediction(BaseModel):
    """The answer for one image."""

    step: Count
    label: str | None
    index: int
    known: bool
    score: Number
    threshold: Number
    mu_desired: Number
    mu_undesired: Number
    verdict: str | None
    adapted: bool
    loss: Number
    reason: str | None
    best: str | None
    ms: dict[str, float]
    class_scores: dict[str, Number] | None
    pseudo_label: int
    diagnostics: dict[str, Number]
    evidence: dict[str, Number]
    warming_up: bool
    events: list[Event]
    probability: Number
    undecided: bool
    explanation: str | None
    class_probabilities: dict[str, Number] | None
    most_like: str | None
    # Only in an answer that was given before to the same idempotency key.
    repeated: bool | Optional = None


class Problem(BaseModel):
    """Why there is no other answer (RFC 9457)."""

    type: str
    title: str
    status: Count
    detail: str
    request_id: str | Optional = None


class NotJudged(BaseModel):
    """In the place of a prediction: why an image has none."""

    problem: Problem


class Predictions(BaseModel):
    """The answers for several images, in order."""

    predictions: list[Prediction | NotJudged]


class Point(BaseModel):
    """One image in the charts."""

    step: Count
    time: float
    score: Number
    threshold: Number
    mu_desired: Number
    mu_undesired: Number
    known: bool
    label: str | None
    best: str | None
    warming_up: bool
    probability: Number
    undecided: bool
    accept: Number


class Recent(BaseModel):
    """The last points and events."""

    points: list[Point]
    events: list[PastEvent]


class KeptImages(BaseModel):
    """Thumbnails with their answers."""

    images: list[dict[str, Any]]


# --- examples ---------------------------------------------------------------------------------------------------------
_EVENT = {"kind": "freeze", "sentence": "Frozen by hand.", "evidence": {}}
_SESSION: dict[str, Any] = {
    "id": EXAMPLE_ID, "name": "door", "classes": ["cat", "dog"], "method": "zero_shot", "score": "field",
    "identifier": "field", "profile": "field", "guard": True, "steps": 152, "images": 153, "accepted": 70,
    "rejected": 50, "refused": 1, "undecided": 32,
    "accepted_share": 0.6,
    "images_per_second": 2.5, "frozen": False, "guard_light": "green", "warming_up": False,
    "class_counts": {"cat": 40, "dog": 30}, "sparkline": [None] * 26 + [0.5, 0.6, 0.65, 0.55],
    "created": 1780000000.0, "last_image": 1780000060.5, "saved_steps": 100, "problem": None,
    "unfamiliar": [],
}  # fmt: skip
_PREDICTION: dict[str, Any] = {
    "step": 121, "label": "cat", "index": 0, "known": True, "score": 3.5, "threshold": 0.0, "mu_desired": None,
    "mu_undesired": None, "verdict": "reliable_desired", "adapted": False, "loss": None,
    "reason": "zero_shot trains no parameters", "best": "cat", "ms": {"encode": 3.1, "decide": 0.4, "update": 0.2},
    "class_scores": None, "pseudo_label": 0, "diagnostics": {},
    "evidence": {"fit": 3.1, "known_neighbours": 0.9, "neighbours": 10.0}, "warming_up": False, "events": [],
    "probability": 0.97, "undecided": False,
    "explanation": "Fits cat better than chance by 3.1 deviations; 9 of its 10 nearest recent images were known.",
    "class_probabilities": None, "most_like": None,
}  # fmt: skip
_POINT = {
    "step": 121, "time": 1780000060.5, "score": 3.5, "threshold": 0.0, "mu_desired": None, "mu_undesired": None,
    "known": True,
    "label": "cat", "best": "cat", "warming_up": False, "probability": 0.97, "undecided": False, "accept": 0.5,
}  # fmt: skip
_PROBLEM: dict[str, Any] = {
    "type": "/problems/not-found", "title": "Not found", "status": 404,
    "detail": f"There is no session '{EXAMPLE_ID}'.",
    "request_id": "c7b718c371c88a62",
}  # fmt: skip
EXAMPLES: dict[type[BaseModel], dict[str, Any]] = {
    NewSession: {"classes": ["cat", "dog"], "name": "door"},
    Rename: {"name": "yard"},
    Login: {"token": "your token"},
    Status: {"status": "ok"},
    Event: _EVENT,
    Session: _SESSION,
    Sessions: {"sessions": [_SESSION]},
    Acted: {"event": _EVENT, "session": _SESSION},
    Prediction: _PREDICTION,
    Predictions: {"predictions": [_PREDICTION]},
    Point: _POINT,
    Recent: {"points": [_POINT], "events": [{"step": 121, "time": 1780000060.5, **_EVENT}]},
    KeptImages: {"images": []},
    Problem: _PROBLEM,
}
