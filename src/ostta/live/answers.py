"""The stream of `ostta stream`: an adapter with a source, a state file and a journal."""

from __future__ import annotations

import json
import os
from collections.abc import Callable, Generator, Iterator
from contextlib import closing, contextmanager, suppress
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
from .state_keeper import IMAGES, AdapterSettings, Keeper, open_adapter


class Arrival(NamedTuple):
    """An item of a source and the number of source events before it; None to include later events."""

    item: Item
    event_count: int | None


@dataclass
class LiveStream:
    """An adapter with its state file, journal and output folder. `digest` summarises the images since the start.

    `ahead` is the option of `Adapter.stream`.
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
        """Yield the answer for each image as JSON fields. An unreadable image has an `error` instead.

        The state is saved regularly, at the end, and when SIGTERM or Ctrl-C ends the iteration. A caller that stops
        early must close the iterator, which also saves the state. The source must be opened with `skip`, so that it
        omits images that are in the journal.
        """
        keeper = Keeper(self.adapter, self.state, self.journal, self.folder, images=self.save_every)
        ahead = batch_size(source, self.ahead)
        # Images that were encoded ahead but not decided have no journal row, so the next start reads them again.
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
        if not read and not waiting.stop_requested and not self.journal.skipped:
            raise Error(f"None of the images in {source.name} could be read.", code="image-unreadable")

    def _arrivals(self, source: Source, ahead: int) -> Iterator[Arrival]:
        for item in source:
            if ahead > 1:
                self.journal.expected.add(item.key)
            yield Arrival(item, source.event_count if ahead > 1 else None)

    def _picture(self, item: Item) -> Image.Image | None:
        """Return the decoded image if it cannot be read again from a file."""
        if item.problem is not None or (item.path is not None and item.frame is None):
            return None
        with suppress(Error):
            return read_image(item.image, self.adapter.resolved.adapter.max_megapixels)
        return None

    def _judged(self, image: UpcomingImage[Arrival], source: Source) -> Row:
        """Process an image and return its journal row."""
        item, event_count = image.item
        try:
            prediction = image.step()
        except Error as problem:
            answer: dict[str, Any] = {"error": str(problem)}
        else:
            answer = {"step": self.adapter.steps, **json.loads(prediction.to_json())}
            answer["memory"] = Memory.of(self.adapter)._asdict()
        events = [event.to_dict() for event in source.new_events(event_count)]
        if events:
            answer["events"] = [*answer.get("events", ()), *events]
        # A video frame is not a file.
        path = item.path if item.frame is None and "error" not in answer else None
        return self.journal.add(self.adapter.steps, item.key, path, with_name(item, answer))


@contextmanager
def open_stream(
    settings: AdapterSettings,
    state: Path | None = None,
    output: outputs.OutputOptions | None = None,
    *,
    device: str | torch.device | None = None,
    dtype: str | torch.dtype | None = None,
    save_every: int = IMAGES,
    ahead: int | None = None,
    about: dict[str, Any] | None = None,
    check: Callable[[Adapter], None] | None = None,
) -> Iterator[LiveStream]:
    """Open a stream, which resumes after its last image.

    If the stream cannot resume, an Error is raised and no file is changed. `check` raises an Error if the adapter
    cannot be used for the stream.
    """
    if state is not None and state.is_symlink():
        # Resolve links, because a save would replace the link instead of its target.
        state = Path(os.path.realpath(state))
    # Lock the journal first, because two programs that find no state file would both create one.
    journal = Journal.temporary() if state is None else Journal.opened(Journal.beside(state))
    new_state = state is not None and not state.exists()
    new_journal = journal.is_empty()
    with closing(journal):
        try:
            if state is not None and new_state and not new_journal:
                raise Error(
                    f"There is a journal {journal.path}, but not the state file {state} that it belongs to: restore "
                    "the state file, or delete the journal to start again.",
                    code="state-missing",
                )
            adapter = open_adapter(settings, state, device, dtype)
            if check is not None:
                check(adapter)
            if state is not None:
                journal.resume(state, adapter.steps, stored_hash(state))
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
            raise
        yield LiveStream(adapter, state, journal, folder, save_every, ahead)


def _image_of(arrival: Arrival) -> ImageSource:
    return arrival.item.require_image()


def with_name(item: Item, answer: dict[str, Any]) -> dict[str, Any]:
    """Add the image name, its bytes if it is not valid Unicode, and the video frame to the answer."""
    name = item.name
    content: dict[str, Any] = {"image": name}
    if not is_unicode(name):
        content["image_bytes"] = os.fsencode(name).hex()
    if item.frame is not None:
        content |= {"frame": item.frame, "time": item.time}
    content |= answer
    # Many JSON parsers reject lone surrogates, even if they are escaped.
    return {key: readable(value) if isinstance(value, str) else value for key, value in content.items()}
