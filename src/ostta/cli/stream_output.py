"""The output of `ostta stream`: JSON lines or the panel, and a summary at the end."""

from __future__ import annotations

import json
import os
import stat
import sys
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import closing, contextmanager, suppress
from typing import Any, TextIO

from ..io import readable
from ..live.answers import LiveStream
from ..live.memory import Memory
from ..live.summary import summary
from ..sources import Source


def show_stream(live: LiveStream, source: Source, *, panel: bool) -> None:
    """Process all images of the source and show the answers."""
    to_terminal = _is_terminal(sys.stdout)
    panel = panel and _is_terminal(sys.stderr) and (to_terminal or _is_file(sys.stdout))
    prints_lines = not (panel and to_terminal)
    ascii_only = (sys.stdout.encoding or "utf-8").lower() not in ("utf-8", "utf8")
    began = time.monotonic()
    with (
        _panel(live, source, enabled=panel, answers=not prints_lines) as show,
        closing(live.answers(source)) as answers,
    ):
        for answer in answers:
            if prints_lines:
                print(json.dumps(answer, ensure_ascii=ascii_only), flush=True)
            show(answer)
    lines = summary(
        live.digest,
        time.monotonic() - began,
        skipped=live.journal.skipped,
        dropped=getattr(source, "dropped", 0),
        memory=Memory.of(live.adapter),
    )
    # Events after the last image are in no answer. Skipped files are always listed.
    new = source.new_events()
    lines += [event.sentence for event in source.events if event.kind == "skipped" or event in new]
    if live.folder is not None:
        lines.append(f"Report: {live.folder.path / 'report.html'}")
    with suppress(OSError, ValueError):  # stderr is closed
        print("\n".join(map(readable, lines)), file=sys.stderr, flush=True)


@contextmanager
def _panel(
    live: LiveStream, source: Source, *, enabled: bool, answers: bool
) -> Iterator[Callable[[Mapping[str, Any]], None]]:
    if not enabled:
        yield lambda answer: None
        return
    from rich.console import Console

    from .stream_panel import StreamPanel, show_panel

    adapter = live.adapter
    parts = (adapter.backbone.id, adapter.method_name, adapter.score_name, adapter.identifier_name)
    panel = StreamPanel(
        live.digest,
        f"{readable(source.name)}  {', '.join(parts)}",
        guarded=adapter.guard is not None,
        dropped=lambda: source.dropped,
        memory=lambda: Memory.of(adapter),
    )
    with show_panel(panel, Console(stderr=True), answers=answers) as show:
        yield show


def _is_terminal(stream: TextIO) -> bool:
    with suppress(AttributeError, OSError, ValueError):
        return stream.isatty()
    return False


def _is_file(stream: TextIO) -> bool:
    """Return whether `stream` is a regular file. A program behind a pipe may print to the terminal itself."""
    with suppress(AttributeError, OSError, ValueError):
        return stat.S_ISREG(os.fstat(stream.fileno()).st_mode)
    return False
