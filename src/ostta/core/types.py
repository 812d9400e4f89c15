"""Types of one step: views, look, score, decision, event and prediction; and the errors."""

from __future__ import annotations

import json
import math
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from enum import StrEnum
from types import MappingProxyType
from typing import Any, Generic, Protocol, TypeVar

import torch

# Type of the intermediate results that a method keeps from its look for the rest of the step.
Plan = TypeVar("Plan", covariant=True)


class Error(Exception):
    """A problem that a person can act on, described in one sentence. The call that raised it changed nothing.

    `code` is a short name of the kind of problem, for programs; the sentence may change between versions.

    >>> try:
    ...     adapter.step(b"")
    ... except ostta.Error as problem:
    ...     print(problem.code, "|", problem)
    image-unreadable | The given bytes are empty: give the whole content of an image file.
    """

    code: str = "error"

    def __init__(self, *arguments: object, code: str | None = None) -> None:
        super().__init__(*arguments)
        if code is not None:
            self.code = code

    def __reduce__(self) -> tuple[Any, ...]:
        # Workers send errors to their parent; the code goes along.
        return type(self), self.args, {"code": self.code}


class ImageError(Error):
    """An image cannot be read. `Adapter.stream` reports it in a prediction and continues with the next image.

    >>> try:
    ...     adapter.step("lost.jpg")
    ... except ostta.ImageError as problem:
    ...     print(problem)
    There is no image file 'lost.jpg'.
    """

    code = "image-unreadable"


class InUseError(Error):
    """An adapter was called while another thread is using it. The image was not processed: try again later.

    >>> with adapter.in_use():
    ...     try:
    ...         adapter.step(image)
    ...     except ostta.InUseError as problem:
    ...         print(problem.code)
    in-use
    """

    code = "in-use"


class Verdict(StrEnum):
    """The identifier's verdict on one image: the four cases of section 4.1 of the paper.

    >>> [verdict.value for verdict in Verdict if verdict.desired]
    ['reliable_desired', 'unreliable_desired']
    """

    RELIABLE_DESIRED = "reliable_desired"
    UNRELIABLE_DESIRED = "unreliable_desired"
    UNRELIABLE_UNDESIRED = "unreliable_undesired"
    RELIABLE_UNDESIRED = "reliable_undesired"

    @classmethod
    def of(cls, desired: bool, score: float, below: float, above: float) -> Verdict:
        """Return the verdict on a score: reliable if an unknown one is below `below`, or a known one above `above`.

        >>> Verdict.of(True, 0.41, below=0.2, above=0.4).value
        'reliable_desired'
        """
        if desired:
            return cls.RELIABLE_DESIRED if score > above else cls.UNRELIABLE_DESIRED
        return cls.RELIABLE_UNDESIRED if score < below else cls.UNRELIABLE_UNDESIRED

    @property
    def desired(self) -> bool:
        return self in (Verdict.RELIABLE_DESIRED, Verdict.UNRELIABLE_DESIRED)

    @property
    def reliable(self) -> bool:
        return self in (Verdict.RELIABLE_DESIRED, Verdict.RELIABLE_UNDESIRED)


# Numbers by name that a score is made of.
Evidence = Mapping[str, float]
NO_EVIDENCE: Evidence = MappingProxyType({})


@dataclass(frozen=True, slots=True)
class Scored:
    """The score of one image: how much it looks like one of the classes, and the numbers behind it.

    `most_like` is the word that fits the image better than every class, if the score has words and there is one.

    >>> Scored(0.41).evidence
    mappingproxy({})
    """

    value: float
    evidence: Evidence = field(default_factory=lambda: NO_EVIDENCE)
    most_like: str | None = None


@dataclass(frozen=True, slots=True)
class Decision:
    """The decision of an identifier on one score.

    `threshold` is None if the identifier has no single threshold. `probability` is the calibrated probability that the
    image is known, None if the identifier has none.

    >>> Decision(Verdict.RELIABLE_DESIRED, threshold=0.36, mu_desired=0.4, mu_undesired=0.2).desired
    True
    """

    verdict: Verdict
    threshold: float | None
    mu_desired: float | None
    mu_undesired: float | None
    probability: float | None = None

    @property
    def desired(self) -> bool:
        return self.verdict.desired


# Kinds of events of the guard and of `reset_every`; sources have others.
EVENTS = ("warn", "skip", "roll_back", "freeze", "thaw", "reset")


@dataclass(frozen=True, slots=True)
class Event:
    """An event beside the predictions: its kind in one word, a sentence, and the numbers behind it.

    >>> Event("dropped", "12 frames were dropped.", {"frames": 12}).kind
    'dropped'
    """

    kind: str
    sentence: str
    evidence: Mapping[str, float] = field(default_factory=lambda: NO_EVIDENCE)

    def to_dict(self) -> dict[str, Any]:
        """Return plain Python values.

        >>> Event("thaw", "It may learn again.").to_dict()
        {'kind': 'thaw', 'sentence': 'It may learn again.', 'evidence': {}}
        """
        return {"kind": self.kind, "sentence": self.sentence, "evidence": dict(self.evidence)}


@dataclass(frozen=True, slots=True)
class Preprocessing:
    """Preprocessing of a backbone, as in a processor config; `data.views` applies it."""

    image_size: int
    mean: tuple[float, float, float]
    std: tuple[float, float, float]
    # "crop" scales the short side to `resize` and cuts the centre; "square" scales both sides to `image_size`.
    fit: str = "crop"
    resize: int | None = None
    # Pillow's filter number: 2 bilinear, 3 bicubic.
    resample: int = 3

    @property
    def images(self) -> str:
        """The image size as text."""
        return f"{self.image_size} x {self.image_size} images"


class ViewSource(Protocol):
    """The views of one image: the canonical one, and random ones, which are computed on demand."""

    @property
    def canonical(self) -> torch.Tensor:
        """[1, 3, H, W]."""

    def augmented(self, count: int) -> torch.Tensor:
        """[count, 3, H, W]; the same call gives the same views."""


@dataclass(frozen=True, slots=True)
class Look(Generic[Plan]):
    """What a method sees in one image before any update. Tensors carry a graph if the update needs it.

    features:  unit features [D] of the canonical view.
    cosines:   cosines to the classes, z = f T^T.
    logits:    final logits of the method, from which score and answer are computed.
    plan:      what the method computed for `propose` and `commit`.
    scores:    values whose maximum is the score `max`, if they are not the logits.
    scale:     the factor that the logits contain: 1 for cosines, the logit scale of the backbone if it is included.
    """

    views: ViewSource
    features: torch.Tensor
    cosines: torch.Tensor
    logits: torch.Tensor
    plan: Plan
    scores: torch.Tensor | None = None
    scale: float = 1.0


@dataclass(frozen=True, slots=True)
class Timing:
    """Milliseconds of the three parts of a step."""

    encode: float = 0.0
    decide: float = 0.0
    update: float = 0.0


@dataclass(frozen=True, slots=True, repr=False)
class Prediction:
    """The prediction for one image.

    label:          the class, None if the image is unknown; `index` and `best` are number and name of the best class
                    even then. They are from after the update if the image was accepted and updated the method.
    score, threshold, verdict, mu_desired, mu_undesired:  from before the update. `accept` changes `known`, not the
                                                          verdict, which is the identifier's.
    adapted, loss, reason:  whether the image changed what the method has learned (trained values, or the cache of a
                            method without gradient steps), the loss, or the reason why there was no update.
    probability:    calibrated probability that the image is known. `undecided` marks images that come too early in a
                    stream, `explanation` is a sentence about the evidence, and `class_probabilities` (an option) divide
                    the probability among the classes. None or False if the score is not `field`.
    most_like:      the word that fits an unknown image better than every class; None without words (docs/words.md).
    warming_up:     whether the identifier has seen too few scores for `known` and `threshold` to be trusted.
    evidence:       numbers behind the score: "class" is the fit to the best class, "known" and "unknown" the similarity
                    to known and unknown images.
    events:         what the guard or `reset_every` did at this image, and why.
    pseudo_label:   the best class before the update, which methods train on; like `index`, -1 for an unreadable image.
    diagnostics:    numbers of the method about the step, such as "matches", the K+ of ROSITA's loss L_D.
    class_scores, features:  logits by class, and unit features from before the update, if these options are set.
    name, time, frame:  origin of an image from a source (`ostta.sources`).

    >>> prediction = adapter.step(image)
    >>> prediction
    Prediction(cat, score 0.45 > 0.00, unreliable)
    >>> prediction.label, prediction.known, round(prediction.score, 2), prediction.reason
    ('cat', True, 0.45, 'the score is not reliable')
    """

    label: str | None
    index: int
    known: bool
    score: float
    threshold: float | None
    mu_desired: float | None
    mu_undesired: float | None
    verdict: Verdict | None
    adapted: bool
    loss: float | None
    reason: str | None
    best: str | None = None
    ms: Timing = field(default_factory=Timing)
    class_scores: Mapping[str, float] | None = None
    pseudo_label: int = -1
    diagnostics: Mapping[str, float] = field(default_factory=dict)
    features: tuple[float, ...] | None = None
    evidence: Evidence = field(default_factory=dict)
    warming_up: bool = False
    name: str | None = None
    time: float | None = None
    frame: int | None = None
    events: tuple[Event, ...] = ()
    probability: float | None = None
    undecided: bool = False
    explanation: str | None = None
    class_probabilities: Mapping[str, float] | None = None
    most_like: str | None = None

    def __repr__(self) -> str:
        if self.verdict is None:
            return f"Prediction(nothing seen{f': {self.reason}' if self.reason else ''})"
        label = self.label
        if label is None:
            label = f"unknown, best class {f'number {self.index}' if self.best is None else self.best}"
        # A class name may have several lines.
        label = " ".join(label.split())
        if self.probability is not None:
            return f"Prediction({label}, probability {self.probability:.2f}{', undecided' if self.undecided else ''})"
        sureness = "reliable" if self.verdict.reliable else "unreliable"
        return f"Prediction({label}, score {compared(self.score, self.threshold)}, {sureness})"

    def to_dict(self) -> dict[str, Any]:
        """Return the content of `to_json` as plain Python values; values that are not finite stay.

        `features` are left out unless the option is set; `name`, `time` and `frame` unless the image has a name.

        >>> adapter.step(image).to_dict()["verdict"]
        'unreliable_desired'
        """
        content: dict[str, Any] = {name: getattr(self, name) for name in (*_ORIGIN, *self.__slots__)}
        if self.name is None:
            for name in _ORIGIN:
                del content[name]
        content["verdict"] = None if self.verdict is None else self.verdict.value
        content["ms"] = {name: round(getattr(self.ms, name), 3) for name in Timing.__slots__}
        for name in ("class_scores", "class_probabilities"):
            content[name] = None if content[name] is None else dict(content[name])
        content["diagnostics"], content["evidence"] = dict(self.diagnostics), dict(self.evidence)
        content["events"] = [event.to_dict() for event in self.events]
        if self.features is None:
            del content["features"]
        else:
            content["features"] = list(self.features)
        return content

    def to_json(self) -> str:
        """Return one line of JSON, with null for values that are not finite.

        >>> adapter.step(image).to_json()[:42]
        '{"label": "cat", "index": 0, "known": true'
        """
        return json.dumps(finite(self.to_dict()), ensure_ascii=False)


# Fields that name the origin of an image.
_ORIGIN = ("name", "time", "frame")


def compared(score: float, threshold: float | None) -> str:
    """Return both numbers with as many digits as show that they differ and that the score is not zero.

    >>> compared(0.412, 0.36), compared(0.36012, 0.36), compared(0.5, None)
    ('0.41 > 0.36', '0.3601 > 0.3600', '0.50')
    """
    if threshold is None:
        return next((text for text in _rounded(score) if float(text) or not score), repr(score))
    sign = ">" if score > threshold else "<" if score < threshold else "="
    pairs = zip(_rounded(score), _rounded(threshold), strict=True)
    both = next((pair for pair in pairs if pair[0] != pair[1] or sign == "="), (repr(score), repr(threshold)))
    return f"{both[0]} {sign} {both[1]}"


def _rounded(value: float) -> Iterator[str]:
    return (f"{value:.{digits}f}" for digits in range(2, 7))


def finite(value: Any) -> Any:
    """Return a JSON value with None in place of infinity and NaN, which JSON does not have.

    >>> finite({"score": float("nan"), "label": "cat"})
    {'score': None, 'label': 'cat'}
    """
    if isinstance(value, float):
        return value if math.isfinite(value) else None
    if isinstance(value, list):
        return [finite(item) for item in value]
    if isinstance(value, dict):
        return {key: finite(item) for key, item in value.items()}
    return value
