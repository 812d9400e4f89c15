"""What `ostta stream` shows: JSON lines, the panel, and a summary at the end."""

from __future__ import annotations

import json
import os
import stat
import sys
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import closing, contextmanager, suppress
from typing import Any

from ..io import readable
from ..live.answers import LiveStream
from ..live.memory import Memory
from ..live.summary import summary
from ..sources import Source


def shown(live: LiveStream, source: Source, *, panel: bool) -> None:
    """Judge all images of the source, and show what is found."""
    panel = panel and _is_terminal(sys.stderr) and (_is_terminal(sys.stdout) or _is_file(sys.stdout))
    prints = not (panel and _is_terminal(sys.stdout))
    ascii_only = (sys.stdout.encoding or "utf-8").lower() not in ("utf-8", "utf8")
    began = time.monotonic()
    with _panel(live, source, wanted=panel, answers=not prints) as show, closing(live.answers(source)) as found:
        for answer in found:
            if prints:
                print(json.dumps(answer, ensure_ascii=ascii_only), flush=True)
            show(answer)
    lines = summary(
        live.digest,
        time.monotonic() - began,
        skipped=live.journal.skipped,
        dropped=getattr(source, "dropped", 0),
        memory=Memory.of(live.adapter),
    )
    # Events after the last image are in no answer; skipped files are told in any case.
    left = source.new_events()
    lines += [event.sentence for event in source.events if event.kind == "skipped" or event in left]
    if live.folder is not None:
        lines.append(f"Report: {live.folder.path / 'report.html'}")
    with suppress(OSError, ValueError):  # nobody to tell
        print("\n".join(map(readable, lines)), file=sys.stderr, flush=True)


@contextmanager
def _panel(
    live: LiveStream, source: Source, *, wanted: bool, answers: bool
) -> Iterator[Callable[[Mapping[str, Any]], None]]:
    if not wanted:
        yield lambda answer: None
        return
    from rich.console import Console

    from .stream_panel import StreamPanel, shown_panel

    adapter = live.adapter
    title = f"{readable(source.name)}  {adapter.backbone.id}, {adapter.method_name}, {adapter.score_name}, {adapter.identifier_name}"
    panel = StreamPanel(
        live.digest,
        title,
        guarded=adapter.guard is not None,
        dropped=lambda: source.dropped,
        memory=lambda: Memory.of(adapter),
    )
    with shown_panel(panel, Console(stderr=True), answers=answers) as show:
        yield show


def _is_terminal(stream: object) -> bool:
    with suppress(AttributeError, OSError, ValueError):
        return bool(stream.isatty())  # type: ignore[attr-defined]
    return False


def _is_file(stream: object) -> bool:
    """Whether what is printed goes to an ordinary file: a program behind a pipe may print to the terminal itself."""
    with suppress(AttributeError, OSError, ValueError):
        return stat.S_ISREG(os.fstat(stream.fileno()).st_mode)  # type: ignore[attr-defined]
    return False
