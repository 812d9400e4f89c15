"""Idempotency keys: an image that is sent again with the same key gets the same answer and is learned from once."""

from __future__ import annotations

import hashlib
import json
import re
import zlib
from array import array
from collections.abc import Sequence
from typing import Any, NamedTuple

from ..engine import Json, Sent
from ..problems import ProblemError
from .store import StoredAnswer

HEADER = "idempotency-key"
# The most keys of a session.
KEYS = 1024
_KEY = re.compile(r"[\x21-\x7e]{1,200}")
# Fields of an answer that are stored.
_STORED_FIELDS = (
    "step", "label", "index", "known", "score", "threshold", "mu_desired", "mu_undesired", "verdict", "adapted",
    "loss", "reason", "best", "pseudo_label", "warming_up", "probability", "undecided", "explanation", "most_like",
)  # fmt: skip
# Values of the other fields.
_DEFAULTS: Json = {
    "ms": {}, "class_scores": None, "diagnostics": {}, "evidence": {}, "events": [], "class_probabilities": None,
}  # fmt: skip


class ImageKey(NamedTuple):
    """The key of one image: a digest of the request's key and the place of the image, and a checksum of its content."""

    digest: str
    checksum: int


def checked_key(text: str | None) -> str | None:
    """Return the value of the `Idempotency-Key` header of a request, or None if there is none."""
    if text is not None and not _KEY.fullmatch(text):
        raise ProblemError(
            400, "The Idempotency-Key header has 1 to 200 visible ASCII characters without spaces, such as a UUID."
        )
    return text


def image_keys(key: str, images: Sequence[Sent]) -> list[ImageKey]:
    """Return the keys of the images of one request.

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
    """The answers to the last images of a session that had a key and were learned from."""

    def __init__(self) -> None:
        # By digest: the place in the order of answers, the checksum of the image, the values of `_STORED_FIELDS`.
        self._answers: dict[str, tuple[int, int, list[Any]]] = {}
        self.last = 0

    @property
    def first(self) -> int:
        """The place of the oldest answer."""
        return next((place for place, _, _ in self._answers.values()), self.last + 1)

    def add(self, key: ImageKey, answer: Json) -> None:
        """Store the answer to an image; the oldest answer is dropped if there are too many."""
        self.last += 1
        # An answer that was replaced moves to the end.
        self._answers.pop(key.digest, None)
        self._answers[key.digest] = self.last, key.checksum, [answer[name] for name in _STORED_FIELDS]
        if len(self._answers) > KEYS:
            del self._answers[next(iter(self._answers))]

    def get(self, key: ImageKey) -> Json | None:
        """Return the answer that was given for this key, or None for an unknown key."""
        if key.digest not in self._answers:
            return None
        _, checksum, values = self._answers[key.digest]
        require_same_image(checksum, key)
        return {**_DEFAULTS, **dict(zip(_STORED_FIELDS, values, strict=True)), "repeated": True}

    def stored(self, after: int) -> list[StoredAnswer]:
        """Return the answers after that place, as the store takes them."""
        return [
            StoredAnswer(digest, place, json.dumps([checksum, *values], ensure_ascii=False))
            for digest, (place, checksum, values) in self._answers.items()
            if place > after
        ]

    @classmethod
    def of(cls, answers: Sequence[StoredAnswer]) -> AnswerCache:
        """Return the cache with stored answers."""
        cache = cls()
        for answer in answers:
            checksum, *values = json.loads(answer.content)
            cache._answers[answer.digest] = answer.place, checksum, values
            cache.last = answer.place
        return cache
