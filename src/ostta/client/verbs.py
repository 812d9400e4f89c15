"""Methods shared by `Client` and `AsyncClient`."""

from __future__ import annotations

import os
from abc import ABC, abstractmethod
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any, Generic, TypeVar

from ..data.class_names import Classes
from . import calls

if TYPE_CHECKING:
    import httpx
    from PIL.Image import Image as Picture

    Image = bytes | str | os.PathLike[str] | Picture

# Return types of the methods: values in `Client`, coroutines in `AsyncClient`.
JsonResult = TypeVar("JsonResult", covariant=True)
ListResult = TypeVar("ListResult", covariant=True)
BytesResult = TypeVar("BytesResult", covariant=True)
NoResult = TypeVar("NoResult", covariant=True)


class Verbs(ABC, Generic[JsonResult, ListResult, BytesResult, NoResult]):
    """All methods except `follow`. The examples use `Client`; with `AsyncClient`, await each call."""

    @abstractmethod
    def _send(self, read: Callable[[httpx.Response], Any], method: str, url: str, **arguments: Any) -> Any:
        """Send a request and return what `read` extracts from the response. The arguments are those of httpx."""

    def _json(self, method: str, url: str, **arguments: Any) -> JsonResult:
        content: JsonResult = self._send(lambda response: response.json(), method, url, **arguments)
        return content

    def _list(self, name: str, method: str, url: str, **arguments: Any) -> ListResult:
        items: ListResult = self._send(lambda response: response.json()[name], method, url, **arguments)
        return items

    def info(self) -> JsonResult:
        """Return the backbone of the server, the names that a session may use, and the limits.

        >>> client.info()["backbone"]
        'embedded'
        """
        return self._json("GET", "/info")

    def sessions(self) -> ListResult:
        """Return all sessions that the token may use, oldest first.

        >>> session["id"] in [one["id"] for one in client.sessions()]
        True
        """
        return self._list("sessions", "GET", "/sessions")

    def create(self, classes: Classes, name: str | None = None, **options: Any) -> JsonResult:
        """Create a session. `options` are method, score, identifier, profile, seed, guard and options, as in the API.

        >>> client.create(["cat", "dog"], name="door", seed=3)["profile"]
        'field'
        """
        named = {} if name is None else {"name": name}
        return self._json("POST", "/sessions", json={"classes": classes, **named, **options})

    def create_from(self, state: bytes | str | os.PathLike[str], name: str | None = None) -> JsonResult:
        """Create a session from the path or the content of a state file.

        >>> client.create_from(client.state(session["id"]), name="a copy")["name"]
        'a copy'
        """
        content = calls.content_of(state, "state file")
        params = {} if name is None else {"name": name}
        return self._json("POST", "/sessions/import", params=params, content=content)

    def session(self, id: str) -> JsonResult:
        """Return the current description of a session.

        >>> client.session(session["id"])["steps"]
        0
        """
        return self._json("GET", f"/sessions/{id}")

    def rename(self, id: str, name: str) -> JsonResult:
        """Rename a session.

        >>> client.rename(session["id"], "yard")["name"]
        'yard'
        """
        return self._json("PATCH", f"/sessions/{id}", json={"name": name})

    def delete(self, id: str) -> NoResult:
        """Delete a session permanently.

        >>> client.delete(session["id"])
        >>> session["id"] in [one["id"] for one in client.sessions()]
        False
        """
        result: NoResult = self._send(lambda response: None, "DELETE", f"/sessions/{id}")
        return result

    def send(
        self, id: str, image: Image, *, learn: bool = True, evidence: bool = False, key: str | None = None
    ) -> JsonResult:
        """Send one image (bytes, a path or a PIL image) and return its answer.

        With `learn=False`, the session does not change. `evidence` adds the scores of all classes.

        `key` is the idempotency key of the image, by default a random key. If an image is sent again with the same key,
        the session learns from it only once.

        >>> client.send(session["id"], image)["label"]
        'cat'
        """
        content = calls.image_bytes(image)
        headers = {"content-type": calls.media_type(content)}
        return self._json(**calls.image_request(id, learn, evidence, key, headers, content=content))

    def send_many(
        self, id: str, images: Sequence[Image], *, learn: bool = True, evidence: bool = False, key: str | None = None
    ) -> ListResult:
        """Send several images and return their answers in order, with {"problem": ...} for an unreadable image.

        `key` is the idempotency key of the call, as in `send`. An image is identified by the key and its position.

        >>> [answer.get("label") for answer in client.send_many(session["id"], [image, b"no image"])]
        ['cat', None]
        """
        contents = [calls.image_bytes(image) for image in images]
        files = [("image", (f"{place}", content, calls.media_type(content))) for place, content in enumerate(contents)]
        return self._list("predictions", **calls.image_request(id, learn, evidence, key, files=files))

    def send_features(
        self,
        id: str,
        features: Sequence[Sequence[float]],
        *,
        learn: bool = True,
        evidence: bool = False,
        key: str | None = None,
    ) -> ListResult:
        """Send features instead of images, for methods that need only features.

        >>> client.send_features(session["id"], [[1.0] + [0.0] * 127])[0]["step"]
        1
        """
        rows = [[float(value) for value in row] for row in features]
        return self._list("predictions", **calls.image_request(id, learn, evidence, key, json={"features": rows}))

    def recent(self, id: str, limit: int = 500) -> JsonResult:
        """Return the most recent chart points and events.

        >>> client.recent(session["id"])
        {'points': [], 'events': []}
        """
        return self._json("GET", f"/sessions/{id}/recent", params={"limit": limit})

    def freeze(self, id: str) -> JsonResult:
        """Stop learning until `thaw`.

        >>> client.freeze(session["id"])["event"]["sentence"]
        'Frozen by hand.'
        """
        return self._json("POST", f"/sessions/{id}/freeze")

    def thaw(self, id: str) -> JsonResult:
        """Resume learning after `freeze`.

        >>> client.thaw(session["id"])["session"]["frozen"]
        False
        """
        return self._json("POST", f"/sessions/{id}/thaw")

    def roll_back(self, id: str) -> JsonResult:
        """Roll back to the last good snapshot of the guard.

        >>> try:
        ...     client.roll_back(session["id"])
        ... except ostta.Error as problem:
        ...     print(problem)
        There is no snapshot to restore yet: the guard stores one every 128 images while no warning is active.
        """
        return self._json("POST", f"/sessions/{id}/roll-back")

    def reset(self, id: str) -> JsonResult:
        """Reset the session to its initial state.

        >>> client.reset(session["id"])["session"]["steps"]
        0
        """
        return self._json("POST", f"/sessions/{id}/reset")

    def save(self, id: str) -> JsonResult:
        """Save the session immediately, if the server stores sessions.

        >>> client.save(session["id"])["session"]["problem"] is None
        True
        """
        return self._json("POST", f"/sessions/{id}/save")

    def state(self, id: str) -> BytesResult:
        """Return the state file of a session, which `Adapter.restore` reads.

        >>> _ = open("door.ostta", "wb").write(client.state(session["id"]))
        >>> ostta.Adapter.restore("door.ostta").steps
        0
        """
        content: BytesResult = self._send(lambda response: response.content, "GET", f"/sessions/{id}/state")
        return content

    def replace_state(self, id: str, state: bytes | str | os.PathLike[str]) -> JsonResult:
        """Replace the state of the session with a state file.

        >>> client.replace_state(session["id"], client.state(session["id"]))["steps"]
        0
        """
        return self._json("PUT", f"/sessions/{id}/state", content=calls.content_of(state, "state file"))
