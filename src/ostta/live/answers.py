"""A person's own images through an adapter, one after the other, with a state file that survives a stop."""

from __future__ import annotations

import json
import os
from collections.abc import Generator
from pathlib import Path
from typing import Any

from ..adapter import Adapter
from ..core.types import Error
from ..files import is_unicode, readable
from ..sources import Item, Source
from .signals import Stoppable
from .state_keeper import Keeper


def answers(adapter: Adapter, source: Source, state: Path | None = None) -> Generator[dict[str, Any], None, None]:
    """What `adapter` says of each image, as JSON fields; an image that cannot be read has an `error` in place of an answer.

    The state is saved to `state` on the way, at the end, and when SIGTERM or Ctrl-C ends the iteration. Who stops reading
    earlier closes the iterator, so that the state is saved then too.
    """
    keeper, read = Keeper(adapter, state), 0
    with Stoppable(source) as waiting:
        try:
            for item in waiting:
                try:
                    prediction = adapter.step(item.require_image())
                except Error as problem:
                    answer: dict[str, Any] = {"error": str(problem)}
                else:
                    read += 1
                    answer = {"step": adapter.steps, **json.loads(prediction.to_json())}
                yield _named(item, answer)
                keeper.stepped()
        finally:
            keeper.save()
    if not read and not waiting.asked:
        raise Error(f"None of the images in {source.name} could be read.")


def _named(item: Item, answer: dict[str, Any]) -> dict[str, Any]:
    """The answer with the image's name, the name's bytes where it is not Unicode, and which frame it is where it is one."""
    name = item.name
    content: dict[str, Any] = {"image": name}
    if not is_unicode(name):
        content["image_bytes"] = os.fsencode(name).hex()
    if item.frame is not None:
        content |= {"frame": item.frame, "time": item.time}
    content |= answer
    # Half of a surrogate pair, even escaped, is something that many readers of JSON refuse.
    return {key: readable(value) if isinstance(value, str) else value for key, value in content.items()}
