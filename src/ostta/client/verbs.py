"""The calls of a client, written once for `Client` and `AsyncClient`."""

from __future__ import annotations

import os
from abc import ABC, abstractmethod
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any, Generic, TypeVar

from ..data.class_names import Classes
from . import calls

if TYPE_CHECKING:
    from PIL.Image import Image as Picture

    Image = bytes | str | os.PathLike[str] | Picture

# What the calls return: values in `Client`, coroutines in `AsyncClient`.
JsonResult = TypeVar("JsonResult", covariant=True)
ListResult = TypeVar("ListResult", covariant=True)
BytesResult = TypeVar("BytesResult", covariant=True)
NoResult = TypeVar("NoResult", covariant=True)


class Verbs(ABC, Generic[JsonResult, ListResult, BytesResult, NoResult]):
    """All calls but `follow`. The examples are those of `Client`; with `AsyncClient`, await each call."""

    @abstractmethod
    def _json(self, call: calls.Call) -> JsonResult:
        """Make a call whose answer is a JSON object."""

    @abstractmethod
    def _list(self, call: calls.Call, name: str) -> ListResult:
        """Make a call whose answer has a list under `name`."""

    @abstractmethod
    def _bytes(self, call: calls.Call) -> BytesResult:
        """Make a call whose answer is a file."""

    @abstractmethod
    def _nothing(self, call: calls.Call) -> NoResult:
        """Make a call without an answer."""

    def info(self) -> JsonResult:
        """Return the backbone of the server, the names that a session may use, and the limits.

        >>> client.info()["backbone"]
        'embedded'
        """
        return self._json(calls.Call("GET", "/info"))

    def sessions(self) -> ListResult:
        """Return all sessions that the token may use, the oldest first.

        >>> session["id"] in [one["id"] for one in client.sessions()]
        True
        """
        return self._list(calls.Call("GET", "/sessions"), "sessions")

    def create(self, classes: Classes, name: str | None = None, **options: Any) -> JsonResult:
        """Create a session. `options` are those of `POST /sessions`: method, score, identifier, profile, seed, guard, options.

        >>> client.create(["cat", "dog"], name="door", seed=3)["profile"]
        'field'
        """
        return self._json(calls.create(classes, name, options))

    def create_from(self, state: bytes | str | os.PathLike[str], name: str | None = None) -> JsonResult:
        """Create a session from a state file, or from its content.

        >>> client.create_from(client.state(session["id"]), name="a copy")["name"]
        'a copy'
        """
        return self._json(calls.create_from(state, name))

    def session(self, id: str) -> JsonResult:
        """Return one session as it is now.

        >>> client.session(session["id"])["steps"]
        0
        """
        return self._json(calls.Call("GET", f"/sessions/{id}"))

    def rename(self, id: str, name: str) -> JsonResult:
        """Give a session another name.

        >>> client.rename(session["id"], "yard")["name"]
        'yard'
        """
        return self._json(calls.Call("PATCH", f"/sessions/{id}", json={"name": name}))

    def delete(self, id: str) -> NoResult:
        """Delete a session for good.

        >>> client.delete(session["id"])
        >>> session["id"] in [one["id"] for one in client.sessions()]
        False
        """
        return self._nothing(calls.Call("DELETE", f"/sessions/{id}"))

    def send(
        self, id: str, image: Image, *, learn: bool = True, evidence: bool = False, key: str | None = None
    ) -> JsonResult:
        """Send one image (bytes, a path or a PIL image) and return its answer.

        `learn=False` changes nothing in the session; `evidence` adds the scores of all classes.

        `key` is the idempotency key of the image, a random one by default. The session learns once from an image that is sent
        again with its key.

        >>> client.send(session["id"], image)["label"]
        'cat'
        """
        return self._json(calls.send(id, image, learn, evidence, key))

    def send_many(
        self, id: str, images: Sequence[Image], *, learn: bool = True, evidence: bool = False, key: str | None = None
    ) -> ListResult:
        """Send several images and return their answers in order; an image that cannot be read has {"problem": ...} instead.

        `key` is the idempotency key of the call, as in `send`; an image is identified by the key and its place.

        >>> [answer.get("label") for answer in client.send_many(session["id"], [image, b"no image"])]
        ['cat', None]
        """
        return self._list(calls.send_many(id, images, learn, evidence, key), "predictions")

    def send_features(
        self,
        id: str,
        features: Sequence[Sequence[float]],
        *,
        learn: bool = True,
        evidence: bool = False,
        key: str | None = None,
    ) -> ListResult:
        """Send features of images instead of images, for methods that need nothing else.

        >>> client.send_features(session["id"], [[1.0] + [0.0] * 127])[0]["step"]
        1
        """
        return self._list(calls.send_features(id, features, learn, evidence, key), "predictions")

    def recent(self, id: str, limit: int = 500) -> JsonResult:
        """Return the last chart points and events.

        >>> client.recent(session["id"])
        {'points': [], 'events': []}
        """
        return self._json(calls.Call("GET", f"/sessions/{id}/recent", {"limit": limit}))

    def freeze(self, id: str) -> JsonResult:
        """Stop learning until `thaw`.

        >>> client.freeze(session["id"])["event"]["sentence"]
        'Frozen by hand.'
        """
        return self._json(calls.Call("POST", f"/sessions/{id}/freeze"))

    def thaw(self, id: str) -> JsonResult:
        """Learn again.

        >>> client.thaw(session["id"])["session"]["frozen"]
        False
        """
        return self._json(calls.Call("POST", f"/sessions/{id}/thaw"))

    def roll_back(self, id: str) -> JsonResult:
        """Return to the last good state that the guard has kept.

        >>> try:
        ...     client.roll_back(session["id"])
        ... except ostta.Error as problem:
        ...     print(problem)
        There is no earlier state to go back to: the guard keeps one after every 128 good images, and has none yet.
        """
        return self._json(calls.Call("POST", f"/sessions/{id}/roll-back"))

    def reset(self, id: str) -> JsonResult:
        """Forget everything that was learned.

        >>> client.reset(session["id"])["session"]["steps"]
        0
        """
        return self._json(calls.Call("POST", f"/sessions/{id}/reset"))

    def save(self, id: str) -> JsonResult:
        """Store the session now, if the server stores sessions.

        >>> client.save(session["id"])["session"]["problem"] is None
        True
        """
        return self._json(calls.Call("POST", f"/sessions/{id}/save"))

    def state(self, id: str) -> BytesResult:
        """Return the state file of a session, which `Adapter.restore` reads.

        >>> _ = open("door.ostta", "wb").write(client.state(session["id"]))
        >>> ostta.Adapter.restore("door.ostta").steps
        0
        """
        return self._bytes(calls.Call("GET", f"/sessions/{id}/state"))

    def replace_state(self, id: str, state: bytes | str | os.PathLike[str]) -> JsonResult:
        """Let the session continue from a state file.

        >>> client.replace_state(session["id"], client.state(session["id"]))["steps"]
        0
        """
        return self._json(calls.replace_state(id, state))
