"""The words of the project as types: what a decision, a look and a prediction are."""

from __future__ import annotations

import json
import math
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from enum import StrEnum
from types import MappingProxyType
from typing import Any, Generic, Protocol, TypeVar

import torch

# What a method works out in a look for the rest of the step; a type of its own in each method.
Plan = TypeVar("Plan", covariant=True)


class Error(Exception):
    """A problem that a person can act on, said in one sentence. Whatever raised it changed nothing.

    `code` is a short name of the kind of problem, for programs; the sentence may change from version to version.

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
    """What the identifier makes of one image (the four cases of section 4.1 of the paper).

    >>> [verdict.value for verdict in Verdict if verdict.desired]
    ['reliable_desired', 'unreliable_desired']
    """

    RELIABLE_DESIRED = "reliable_desired"
    UNRELIABLE_DESIRED = "unreliable_desired"
    UNRELIABLE_UNDESIRED = "unreliable_undesired"
    RELIABLE_UNDESIRED = "reliable_undesired"

    @classmethod
    def of(cls, desired: bool, score: float, below: float, above: float) -> Verdict:
        """The verdict on an accepted or rejected `score`; it is reliable strictly below `below`, or strictly above `above`.

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
    """What a score says of one image: how much it looks like one of the classes, and the numbers that this is made of.

    `most_like` is the word that fits the image better than every class, where the score has words and there is such a word.

    >>> Scored(0.41).evidence
    mappingproxy({})
    """

    value: float
    evidence: Evidence = field(default_factory=lambda: NO_EVIDENCE)
    most_like: str | None = None


@dataclass(frozen=True, slots=True)
class Decision:
    """An identifier's answer for one score. `threshold` is None where the identifier draws no single line through the scores.

    `probability` is the calibrated probability that the image is known, None where the identifier has none.

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


# What the guard does, and a reset by `reset_every`; sources have kinds of their own.
EVENTS = ("warn", "skip", "roll_back", "freeze", "thaw", "reset")


@dataclass(frozen=True, slots=True)
class Event:
    """Something that happened beside the answers: its kind in one word, a sentence for people, and the numbers behind it.

    >>> Event("dropped", "12 frames were dropped.", {"frames": 12}).kind
    'dropped'
    """

    kind: str
    sentence: str
    evidence: Mapping[str, float] = field(default_factory=lambda: NO_EVIDENCE)

    def to_dict(self) -> dict[str, Any]:
        """As plain Python values.

        >>> Event("thaw", "It may learn again.").to_dict()
        {'kind': 'thaw', 'sentence': 'It may learn again.', 'evidence': {}}
        """
        return {"kind": self.kind, "sentence": self.sentence, "evidence": dict(self.evidence)}


@dataclass(frozen=True, slots=True)
class Preprocessing:
    """How a backbone wants its images: the numbers of a processor config. `data.views` carries them out."""

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
        """What the images are, in words."""
        return f"{self.image_size} x {self.image_size} images"


class ViewSource(Protocol):
    """The views of one image: the canonical one, and random ones that are made only when asked for."""

    @property
    def canonical(self) -> torch.Tensor:
        """[1, 3, H, W]."""

    def augmented(self, count: int) -> torch.Tensor:
        """[count, 3, H, W]; the same call gives the same views."""


@dataclass(frozen=True, slots=True)
class Look(Generic[Plan]):
    """What a method sees in one image before any update. Tensors carry a graph where the update will need it.

    `features` is the canonical view's unit feature [D]. `logits` are the method's final ones, which score and answer come from;
    `cosines` are z = f T^T, which MSP needs. `plan` is what the method worked out on the way, for `propose` and `commit`.
    `scores` are what the score `max` is the largest of, where not of the logits.
    """

    views: ViewSource
    features: torch.Tensor
    cosines: torch.Tensor
    logits: torch.Tensor
    plan: Plan
    scores: torch.Tensor | None = None


@dataclass(frozen=True, slots=True)
class Timing:
    """Milliseconds of the three parts of a step."""

    encode: float = 0.0
    decide: float = 0.0
    update: float = 0.0


@dataclass(frozen=True, slots=True, repr=False)
class Prediction:
    """The answer for one image.

    `score`, `threshold` and `verdict` are from before the update; `index` is from after it where the image was accepted and an
    update happened. `label` is None for "I don't know"; `index` is the best class even then, and `best` is its name. `reason` says
    why no update was made. `class_scores`, if asked for, are the final logits by class name.
    `pseudo_label` is the best class before the update, which is what a method trains on; like `index`, -1 where nothing was seen.
    `diagnostics` are numbers by name that the method has about the step, such as ROSITA's "matches", the K+ of L_D where it acted;
    "reset" is there where the image's update was the last before a reset, and says how many updates were taken back.
    `features`, if asked for, is the image's unit feature from before the update. `evidence` are the numbers by name that the score
    is made of: "class" is the fit to the best class, "known" and "unknown" the likeness to known and unknown images.
    `warming_up` is true while the identifier knows too few scores for `known` and `threshold` to be trusted.
    `probability` is the probability that the image is known, and `undecided` marks images that come too early in a stream to decide;
    `known` is then the better guess. `explanation` is a sentence about the evidence. `class_probabilities`, if asked for, are the
    probabilities of the classes; what is missing to 1 is the probability that the image is unknown. All four are None or false where the
    score is not `field`.
    `most_like` is the word that fits an unknown image better than every class; None without words (docs/words.md).
    `name`, `time` and `frame` are those of the image where it came from a source (`ostta.sources`).
    `events` say what the guard did at this image, or `reset_every`, and why.

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
            label = f"I don't know, best class {f'number {self.index}' if self.best is None else self.best}"
        # A class may be called by anything, even by several lines.
        label = " ".join(label.split())
        if self.probability is not None:
            return f"Prediction({label}, probability {self.probability:.2f}{', undecided' if self.undecided else ''})"
        sureness = "reliable" if self.verdict.reliable else "unreliable"
        return f"Prediction({label}, score {compared(self.score, self.threshold)}, {sureness})"

    def to_dict(self) -> dict[str, Any]:
        """What `to_json` writes, as plain Python values; a value that is not finite stays what it is. `features` only if asked for,
        `name`, `time` and `frame`, which come first, only of an image with a name.

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
        """One line of JSON; a value that is not finite becomes null, as JSON has no word for it. `features` only if asked for.

        >>> adapter.step(image).to_json()[:42]
        '{"label": "cat", "index": 0, "known": true'
        """
        return json.dumps(_finite(self.to_dict()), ensure_ascii=False)


# Where an image came from, as a prediction says it.
_ORIGIN = ("name", "time", "frame")


def compared(score: float, threshold: float | None) -> str:
    """Both numbers, in as many digits as are needed to see that they differ, and that the score is not zero.

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


def _finite(value: Any) -> Any:
    if isinstance(value, float):
        return value if math.isfinite(value) else None
    if isinstance(value, list):
        return [_finite(item) for item in value]
    if isinstance(value, dict):
        return {key: _finite(item) for key, item in value.items()}
    return value
