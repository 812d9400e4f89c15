"""A person's own images through an adapter, one after the other, with a state file that survives a stop."""

from __future__ import annotations

import json
import os
from collections.abc import Callable, Generator, Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, NamedTuple

import torch
from PIL import Image

from ..adapter import Adapter
from ..core.types import Error
from ..data.images import ImageSource, read_image
from ..io import is_unicode, readable
from ..lookahead import UpcomingImage, batch_size, look_ahead
from ..sources import Item, Source
from ..state import stored_hash
from . import outputs
from .digest import Digest
from .journal import Journal, Row
from .memory import Memory
from .outputs import OutputFolder
from .signals import Stoppable
from .state_keeper import IMAGES, Keeper, Wanted, opened


class Arrival(NamedTuple):
    """An item of a source, and how many events the source had when it gave the item; None where later events count too."""

    item: Item
    event_count: int | None


@dataclass
class LiveStream:
    """An adapter with its state file, its journal and its output folder; `digest` is of what was judged since the start.

    `ahead` is that of `Adapter.stream`.
    """

    adapter: Adapter
    state: Path | None
    journal: Journal
    folder: OutputFolder | None = None
    save_every: int = IMAGES
    ahead: int | None = None
    digest: Digest = field(init=False)

    def __post_init__(self) -> None:
        self.digest = Digest(accept=self.adapter.acceptance.common)

    def answers(self, source: Source) -> Generator[dict[str, Any], None, None]:
        """What the adapter says of each image, as JSON fields; an image that cannot be read has an `error` in place of an answer.

        All is saved on the way, at the end, and when SIGTERM or Ctrl-C ends the iteration. Who stops reading earlier closes the
        iterator, so that it is saved then too. The source leaves out what the journal knows: it was opened with `skip`.
        """
        keeper = Keeper(self.adapter, self.state, self.journal, self.folder, images=self.save_every)
        ahead = batch_size(source, self.ahead)
        # A stop drops the images that were encoded and not decided: they have no row, and the next start reads them again.
        upcoming = look_ahead(self.adapter, self._arrivals(source, ahead), _image_of, ahead, self.journal.last)
        with Stoppable(upcoming) as waiting:
            try:
                for image in waiting:
                    row = self._judged(image, source)
                    if self.folder is not None:
                        self.folder.show(row, image.picture or self._picture(image.item.item))
                    self.digest.add(row.content)
                    yield row.content
                    keeper.stepped()
            finally:
                self.journal.expected.clear()
                keeper.save()
                if self.folder is not None:
                    self.folder.finish()
        read = self.digest.images - self.digest.unreadable
        if not read and not waiting.asked and not self.journal.skipped:
            raise Error(f"None of the images in {source.name} could be read.", code="image-unreadable")

    def _arrivals(self, source: Source, ahead: int) -> Iterator[Arrival]:
        for item in source:
            if ahead > 1:
                self.journal.expected.add(item.key)
            yield Arrival(item, source.event_count if ahead > 1 else None)

    def _picture(self, item: Item) -> Image.Image | None:
        """The picture of an image that has no file to read it from again."""
        if item.problem is not None or (item.path is not None and item.frame is None):
            return None
        with suppress(Error):
            return read_image(item.image, self.adapter.resolved.adapter.max_megapixels)
        return None

    def _judged(self, image: UpcomingImage[Arrival], source: Source) -> Row:
        """Decide an image; its row."""
        item, event_count = image.item
        try:
            prediction = image.step()
        except Error as problem:
            answer: dict[str, Any] = {"error": str(problem)}
        else:
            answer = {"step": self.adapter.steps, **json.loads(prediction.to_json())}
            answer["memory"] = Memory.of(self.adapter)._asdict()
        happened = [
            {"kind": event.kind, "sentence": event.sentence, "evidence": dict(event.evidence)}
            for event in source.new_events(event_count)
        ]
        if happened:
            answer["events"] = [*answer.get("events", ()), *happened]
        # A frame of a video has no file of its own.
        path = item.path if item.frame is None and "error" not in answer else None
        return self.journal.add(self.adapter.steps, item.key, path, _named(item, answer))


@contextmanager
def open_stream(
    wanted: Wanted,
    state: Path | None = None,
    output: outputs.Wanted | None = None,
    *,
    device: str | torch.device | None = None,
    dtype: str | torch.dtype | None = None,
    save_every: int = IMAGES,
    ahead: int | None = None,
    about: dict[str, Any] | None = None,
    check: Callable[[Adapter], None] | None = None,
) -> Iterator[LiveStream]:
    """A stream that goes on where it stopped; where it cannot, an Error, and nothing has changed.

    `check` raises an Error if the adapter cannot be used for the stream.
    """
    if state is not None and state.is_symlink():
        # A save replaces the file: it would replace the link, and leave the state that the link points to behind.
        state = Path(os.path.realpath(state))
    # The lock comes first: two programs that find no state file would both make one.
    journal = Journal.temporary() if state is None else Journal.opened(Journal.beside(state))
    new_state = state is not None and not state.exists()
    new_journal = journal.is_empty()
    try:
        if state is not None and new_state and not new_journal:
            raise Error(
                f"There is a journal {journal.path}, but not the state file {state} that it belongs to: bring the state back, or "
                "remove the journal to begin anew.",
                code="state-missing",
            )
        adapter = opened(wanted, state, device, dtype)
        if check is not None:
            check(adapter)
        if state is not None:
            journal.go_on(state, adapter.steps, stored_hash(state))
        folder = None
        if output is not None:
            described = {**(about or {}), **adapter.describe(), "unfamiliar": adapter.unfamiliar}
            accept = adapter.acceptance.common
            folder = OutputFolder(output, journal, adapter.classes, described, lambda: Memory.of(adapter), accept)
    except BaseException:
        if state is not None and new_state and new_journal:
            with suppress(OSError):
                state.unlink(missing_ok=True)
        if new_journal:
            journal.remove()
        journal.close()
        raise
    try:
        yield LiveStream(adapter, state, journal, folder, save_every, ahead)
    finally:
        journal.close()


def _image_of(arrival: Arrival) -> ImageSource:
    return arrival.item.require_image()


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
