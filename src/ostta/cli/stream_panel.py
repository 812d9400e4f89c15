"""The panel of `ostta stream`: speed, accepted images, classes, recent scores, the guard and the last answers."""

from __future__ import annotations

import time
from collections import deque
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from typing import Any

from rich.console import Console, Group
from rich.live import Live
from rich.panel import Panel
from rich.table import Table
from rich.text import Text

from ..core.text import counted
from ..core.types import compared
from ..live.digest import Digest, is_undecided
from ..live.memory import Memory
from ..pages.stream import histogram

# Seconds between two updates of the panel, and seconds over which the rate is measured.
INTERVAL, RATE_SECONDS = 0.25, 10.0
MAX_CLASSES, BINS = 8, 48
# Number of answers below the panel.
ANSWERS = 8
# Width of the column of answers, such as "undecided (automobile?)".
ANSWER_WIDTH = 25
KNOWN, UNKNOWN = "bright_blue", "yellow"
# The colour of the light by the last event of the guard; a yellow light turns green after this many images.
LIGHTS = {"warn": "yellow", "skip": "yellow", "roll_back": "yellow", "freeze": "red", "thaw": "green"}
CALM_AFTER = 200


@contextmanager
def show_panel(panel: StreamPanel, console: Console, *, answers: bool) -> Iterator[Callable[[Mapping[str, Any]], None]]:
    """Show the panel, and the last answers below it if `answers`; yields a function to call with every answer.

    Older answers are printed above the panel. The panel disappears at the end, so that all answers remain in order.
    """
    panel.plain = console.options.ascii_only
    below: deque[Text] = deque()
    try:
        with Live(panel.render(), console=console, auto_refresh=False, redirect_stdout=False, transient=True) as live:
            shown_at = 0.0

            def show(answer: Mapping[str, Any]) -> None:
                nonlocal shown_at
                if answers:
                    below.append(answer_line(answer))
                if time.monotonic() - shown_at >= INTERVAL:
                    shown_at = time.monotonic()
                    above = [below.popleft() for _ in range(len(below) - ANSWERS)]
                    live.update(Group(panel.render(), *below), refresh=True)
                    if above:
                        console.print(*above, sep="\n")

            yield show
    finally:
        if below:
            console.print(*below, sep="\n")


def answer_line(answer: Mapping[str, Any]) -> Text:
    """Return one line: the class or "unknown", the probability of being known or the score, and the image.

    >>> answer = {"image": "a.png", "label": "cat", "known": True, "verdict": "reliable_desired"}
    >>> answer_line({**answer, "score": 0.41, "threshold": 0.36}).plain
    'cat                         0.41 > 0.36  a.png'
    >>> answer_line({**answer, "score": 3.5, "probability": 0.97}).plain
    'cat, 0.97                        a.png'
    """
    width, image = ANSWER_WIDTH, _printable(answer["image"])
    if answer.get("error"):
        return Text(f"{'not readable':<{width}}  {image}: {_printable(answer['error'])}", style="red")
    if answer.get("verdict") is None or answer.get("score") is None:
        return Text(f"{'nothing seen':<{width}}  {image}: {_printable(answer.get('reason') or '')}", style="yellow")
    words, style = (_printable(answer["label"]), KNOWN) if answer["known"] else ("unknown", UNKNOWN)
    if is_undecided(answer):
        words, style = f"undecided ({words}?)", "dim"
    if answer.get("probability") is not None:
        words, width = f"{words}, {answer['probability']:.2f}", width + len(", 0.97")
        return Text.assemble((f"{words:<{width}}", style), f"  {image}")
    score = compared(answer["score"], answer.get("threshold"))
    return Text.assemble((f"{words:<{width}}", style), f"  {score:>12}  {image}")


def _printable(text: str) -> str:
    """Return `text` on one line, with a replacement for control characters."""
    return "".join(character if character.isprintable() else "\ufffd" for character in " ".join(text.split()))


class StreamPanel:
    """The content of the panel. The digest changes while the stream runs."""

    def __init__(
        self,
        digest: Digest,
        title: str,
        *,
        guarded: bool = False,
        dropped: Callable[[], int] = lambda: 0,
        memory: Callable[[], Memory] = Memory,
        plain: bool = False,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self._digest, self._title, self._guarded, self._dropped = digest, title, guarded, dropped
        self._clock, self._memory, self.plain = clock, memory, plain
        self._times: deque[tuple[float, int]] = deque([(clock(), 0)])

    def render(self) -> Panel:
        """Return the panel with the current figures."""
        figures = Table.grid(padding=(0, 2))
        for name, value in self._figures():
            figures.add_row(Text(name, style="dim"), value)
        both = Table.grid(padding=(0, 4))
        # An empty table would make the column beside it too narrow.
        both.add_row(figures, *([self._classes()] if self._digest.classes else []))
        return Panel(
            Group(both, Text(), *self._scores()),
            title=Text(self._title),
            title_align="left",
            border_style="dim",
            expand=False,
        )

    def _figures(self) -> Iterator[tuple[str, Text]]:
        digest = self._digest
        yield "images", Text(f"{digest.images:,}  ({self._rate():.1f} a second)")
        share = digest.accepted_share
        if share is not None:
            yield "accepted", Text(f"{100 * share:.1f} %  {self._bar(share, 16)}", style=KNOWN)
            yield "don't know", Text(f"{digest.rejected:,}", style=UNKNOWN)
        if digest.undecided:
            yield "undecided", Text(f"{digest.undecided:,}  (warming up)", style="dim")
        if digest.unreadable:
            yield "not readable", Text(f"{digest.unreadable:,}", style="red")
        dropped = self._dropped()
        if dropped:
            yield "dropped", Text(f"{dropped:,}", style="yellow")
        yield "memory", Text(str(self._memory()), no_wrap=True)
        yield "guard", self._light()

    def _classes(self) -> Table:
        table = Table.grid(padding=(0, 1))
        most = max(self._digest.classes.values(), default=1)
        for name, count in self._digest.classes.most_common(MAX_CLASSES):
            label = Text(" ".join(name.split()), overflow="ellipsis", no_wrap=True)
            label.truncate(20, overflow="ellipsis")
            table.add_row(label, Text(self._bar(count / most, 18), style=KNOWN), Text(f"{count:,}"))
        left = len(self._digest.classes) - MAX_CLASSES
        if left > 0:
            table.add_row(Text(f"{left} more", style="dim"), "", "")
        return table

    def _scores(self) -> Iterator[Text]:
        """Yield a histogram of recent scores or probabilities, with the threshold and a caption."""
        recent, threshold = list(self._digest.recent), self._digest.threshold
        if not recent:
            yield Text("waiting for the first image", style="dim")
            return
        probabilities = self._digest.has_probabilities
        counts, low, high = histogram(recent, BINS, (0.0, 1.0) if probabilities else None)
        levels, most = " .:-=+*#%@" if self.plain else " ▁▂▃▄▅▆▇█", max(counts)
        step = (high - low) / BINS
        line = Text()
        for number, count in enumerate(counts):
            below = threshold is not None and low + (number + 0.5) * step < threshold
            height = 0 if not count else max(1, round(count / most * (len(levels) - 1)))
            line.append(levels[height], style=UNKNOWN if below else KNOWN)
        yield line
        mark = "^" if self.plain else "▲"
        values = (
            counted(len(recent), "probability", "probabilities") if probabilities else counted(len(recent), "score")
        )
        if threshold is None:
            none = "the smallest accepted one depends on the class" if probabilities else "no threshold now"
            yield Text(f"the last {values}, {low:.2f} to {high:.2f}; {none}", style="dim")
            return
        place = min(BINS - 1, max(0, int((threshold - low) / (high - low) * BINS)))
        yield Text(f"{' ' * place}{mark} {threshold:.2f}")
        young = "" if self._digest.decided else "; warming up"
        yield Text(f"the last {values}, {low:.2f} to {high:.2f}{young}", style="dim")

    def _light(self) -> Text:
        lamp = "o" if self.plain else "●"
        if not self._guarded:
            return Text("off", style="dim")
        for number, _, event in reversed(self._digest.events):
            kind = str(event.get("kind"))
            colour = LIGHTS.get(kind)
            if colour is None:
                continue
            if colour == "yellow" and self._digest.images - number > CALM_AFTER:
                break
            sentence = " ".join(str(event.get("sentence", "")).split())[:60]
            return Text.assemble((lamp, colour), f" {kind.replace('_', ' ')}: {sentence}")
        return Text.assemble((lamp, "green"), " no problem")

    def _rate(self) -> float:
        now = self._clock()
        self._times.append((now, self._digest.images))
        while len(self._times) > 2 and now - self._times[0][0] > RATE_SECONDS:
            self._times.popleft()
        began, before = self._times[0]
        return (self._digest.images - before) / (now - began) if now > began else 0.0

    def _bar(self, share: float, width: int) -> str:
        return ("#" if self.plain else "█") * round(share * width)
