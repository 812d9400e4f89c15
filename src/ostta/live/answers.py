"""A person's own images through an adapter, one after the other, with a state file that survives a stop."""

from __future__ import annotations

import json
import os
from collections.abc import Generator, Iterable
from pathlib import Path
from typing import Any

from ..adapter import Adapter
from ..core.types import Error
from ..files import is_unicode, readable
from .signals import Stoppable
from .state_keeper import Keeper


def answers(
    adapter: Adapter, paths: Iterable[Path], state: Path | None = None, *, source: str
) -> Generator[dict[str, Any], None, None]:
    """What `adapter` says of each image, as JSON fields; an image that cannot be read has an `error` in place of an answer.

    The state is saved to `state` on the way, at the end, and when SIGTERM or Ctrl-C ends the iteration. Who stops reading
    earlier closes the iterator, so that the state is saved then too. `source` names the images where none can be read.
    """
    keeper, read = Keeper(adapter, state), 0
    with Stoppable(paths) as waiting:
        try:
            for path in waiting:
                try:
                    prediction = adapter.step(path)
                except Error as problem:
                    answer: dict[str, Any] = {"error": str(problem)}
                else:
                    read += 1
                    answer = {"step": adapter.steps, **json.loads(prediction.to_json())}
                yield _named(path, answer)
                keeper.stepped()
        finally:
            keeper.save()
    if not read and not waiting.asked:
        raise Error(f"None of the images in {source} could be read.")


def _named(path: Path, answer: dict[str, Any]) -> dict[str, Any]:
    """The answer with the image's name, and the name's bytes where it is not Unicode."""
    name = str(path)
    content = {"image": name, **({} if is_unicode(name) else {"image_bytes": os.fsencode(name).hex()}), **answer}
    # Half of a surrogate pair, even escaped, is something that many readers of JSON refuse.
    return {key: readable(value) if isinstance(value, str) else value for key, value in content.items()}
