"""Idempotency keys: an image that is sent again with the same key gets its answer again and is learned from once."""

from __future__ import annotations

import hashlib
import re
import zlib
from array import array
from collections.abc import Sequence
from typing import Any, NamedTuple

from ..core.types import Prediction
from .engine import Json, Sent
from .predictions import to_json
from .problems import ProblemError

HEADER = "idempotency-key"
# Keys of a session whose answers are kept.
KEYS = 1024
_KEY = re.compile(r"[\x21-\x7e]{1,200}")
# Fields of an answer that are kept, and those that a repeated answer has without a value.
_KEPT = (
    "step", "label", "index", "known", "score", "threshold", "mu_desired", "mu_undesired", "verdict", "adapted", "loss", "reason",
    "best", "pseudo_label", "warming_up", "probability", "undecided", "explanation",
)  # fmt: skip
# Values of the last fields in files from before there were probabilities.
_LATER = [None, False, None]
_NOT_KEPT: Json = {
    "ms": {}, "class_scores": None, "diagnostics": {}, "evidence": {}, "events": [], "class_probabilities": None,
}  # fmt: skip


class ImageKey(NamedTuple):
    """The key of one image: a digest of the request's key and the image's place in the request, and a checksum of the content."""

    digest: str
    checksum: int


def checked_key(text: str | None) -> str | None:
    """The value of the `Idempotency-Key` header of a request, or None if there is none."""
    if text is not None and not _KEY.fullmatch(text):
        raise ProblemError(
            400, "The Idempotency-Key header has 1 to 200 visible ASCII characters without spaces, such as a UUID."
        )
    return text


def image_keys(key: str, images: Sequence[Sent]) -> list[ImageKey]:
    """The keys of the images of one request.

    >>> one, other = image_keys("frame-17", [b"an image", b"another"])
    >>> one == image_keys("frame-17", [b"an image"])[0], one.digest == other.digest
    (True, False)
    """
    return [
        ImageKey(
            hashlib.sha256(f"{place}/{key}".encode()).hexdigest()[:32],
            zlib.crc32(sent if isinstance(sent, bytes) else array("d", sent).tobytes()),
        )
        for place, sent in enumerate(images)
    ]


def require_same_image(known: int, key: ImageKey) -> None:
    """Refuse a key that was sent with another image before."""
    if known != key.checksum:
        raise ProblemError(
            422, "This idempotency key was sent with another image before: use a new key for each image."
        )


class AnswerCache:
    """The answers to the last images of a session that were learned from and had a key."""

    def __init__(self) -> None:
        self._answers: dict[str, tuple[int, list[Any]]] = {}

    def add(self, key: ImageKey, prediction: Prediction, step: int) -> None:
        """Keep the answer to an image; the oldest one is dropped if there are too many."""
        answer = to_json(prediction, step, evidence=False)
        self._answers[key.digest] = key.checksum, [answer[name] for name in _KEPT]
        if len(self._answers) > KEYS:
            del self._answers[next(iter(self._answers))]

    def get(self, key: ImageKey) -> Json | None:
        """The answer that was given for this key; None if the key is not known."""
        if key.digest not in self._answers:
            return None
        checksum, values = self._answers[key.digest]
        require_same_image(checksum, key)
        return {**dict(zip(_KEPT, values, strict=True)), **_NOT_KEPT, "repeated": True}

    def to_json(self) -> list[list[Any]]:
        return [[digest, checksum, *values] for digest, (checksum, values) in self._answers.items()]

    @classmethod
    def of(cls, content: Any) -> AnswerCache:
        """The cache that `to_json` described; entries of another form are ignored, as a file may hold anything."""
        cache = cls()
        for row in content if isinstance(content, list) else ():
            if isinstance(row, list) and len(row) == 2 + len(_KEPT) - len(_LATER):
                row = row + _LATER
            if isinstance(row, list) and len(row) == 2 + len(_KEPT) and isinstance(row[0], str) and type(row[1]) is int:
                cache._answers[row[0]] = row[1], row[2:]
        return cache
