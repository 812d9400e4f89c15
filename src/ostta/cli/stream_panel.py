"""The panel of `ostta stream` on a terminal: how fast, how many accepted, which classes, the scores, the guard, the last answers."""

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

from ..core.types import compared
from ..core.words import counted
from ..live.digest import Digest, is_undecided
from ..live.memory import Memory
from ..pages.stream import histogram

# Seconds between two pictures of the panel, and over which the rate is taken.
PAUSE, RATE_OVER = 0.25, 10.0
MOST_CLASSES, BINS = 8, 48
# Answers below the panel.
ANSWERS = 8
KNOWN, UNKNOWN = "bright_blue", "yellow"
# What the guard did last, and its light; so many images after a warning it is green again.
LIGHTS = {"warn": "yellow", "skip": "yellow", "roll_back": "yellow", "freeze": "red", "thaw": "green"}
CALM = 200


@contextmanager
def shown_panel(
    panel: StreamPanel, console: Console, *, answers: bool
) -> Iterator[Callable[[Mapping[str, Any]], None]]:
    """Show the panel, and below it the last `answers`, until the block exits; yields a function to call with every answer.

    An answer that no longer fits below the panel is printed above it, into the history of the terminal. The panel disappears at the
    end, so that all answers remain in order.
    """
    panel.plain = console.options.ascii_only
    below: deque[Text] = deque()
    try:
        with Live(panel.picture(), console=console, auto_refresh=False, redirect_stdout=False, transient=True) as live:
            drawn = 0.0

            def show(answer: Mapping[str, Any]) -> None:
                nonlocal drawn
                if answers:
                    below.append(answer_line(answer))
                if time.monotonic() - drawn >= PAUSE:
                    drawn = time.monotonic()
                    above = [below.popleft() for _ in range(len(below) - ANSWERS)]
                    live.update(Group(panel.picture(), *below), refresh=True)
                    if above:
                        console.print(*above, sep="\n")

            yield show
    finally:
        if below:
            console.print(*below, sep="\n")


def answer_line(answer: Mapping[str, Any]) -> Text:
    """One answer for a person: the class or "I don't know", how sure it is, and the image.

    This is the probability that the image is known, or the score beside the threshold where there is no probability.

    >>> answer_line({"image": "a.png", "label": "cat", "known": True, "verdict": "reliable_desired", "score": 0.41, "threshold": 0.36}).plain
    'cat                         0.41 > 0.36  a.png'
    >>> answer_line({"image": "a.png", "label": "cat", "known": True, "verdict": "reliable_desired", "score": 3.5, "probability": 0.97}).plain
    'cat, 0.97                        a.png'
    """
    width, image = len("undecided (I don't know?)"), _printable(answer["image"])
    if answer.get("error"):
        return Text(f"{'not readable':<{width}}  {image}: {_printable(answer['error'])}", style="red")
    if answer.get("verdict") is None or answer.get("score") is None:
        return Text(f"{'nothing seen':<{width}}  {image}: {_printable(answer.get('reason') or '')}", style="yellow")
    words, style = (_printable(answer["label"]), KNOWN) if answer["known"] else ("I don't know", UNKNOWN)
    if is_undecided(answer):
        words, style = f"undecided ({words}?)", "dim"
    if answer.get("probability") is not None:
        words, width = f"{words}, {answer['probability']:.2f}", width + len(", 0.97")
        return Text.assemble((f"{words:<{width}}", style), f"  {image}")
    score = compared(answer["score"], answer.get("threshold"))
    return Text.assemble((f"{words:<{width}}", style), f"  {score:>12}  {image}")


def _printable(text: str) -> str:
    """On one line, without characters that control a terminal."""
    return "".join(character if character.isprintable() else "\ufffd" for character in " ".join(text.split()))


class StreamPanel:
    """What is shown, from a digest that grows."""

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

    def picture(self) -> Panel:
        """The panel as it is now."""
        figures = Table.grid(padding=(0, 2))
        for name, value in self._figures():
            figures.add_row(Text(name, style="dim"), value)
        both = Table.grid(padding=(0, 4))
        # An empty table would make the columns beside it too narrow.
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
        for name, count in self._digest.classes.most_common(MOST_CLASSES):
            label = Text(" ".join(name.split()), overflow="ellipsis", no_wrap=True)
            label.truncate(20, overflow="ellipsis")
            table.add_row(label, Text(self._bar(count / most, 18), style=KNOWN), Text(f"{count:,}"))
        left = len(self._digest.classes) - MOST_CLASSES
        if left > 0:
            table.add_row(Text(f"{left} more", style="dim"), "", "")
        return table

    def _scores(self) -> Iterator[Text]:
        """The last scores or probabilities; those below the threshold have the colour of "I don't know"."""
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
            none = "the smallest one that is accepted depends on the class" if probabilities else "no threshold now"
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
            if colour == "yellow" and self._digest.images - number > CALM:
                break
            sentence = " ".join(str(event.get("sentence", "")).split())[:60]
            return Text.assemble((lamp, colour), f" {kind.replace('_', ' ')}: {sentence}")
        return Text.assemble((lamp, "green"), " all well")

    def _rate(self) -> float:
        now = self._clock()
        self._times.append((now, self._digest.images))
        while len(self._times) > 2 and now - self._times[0][0] > RATE_OVER:
            self._times.popleft()
        began, before = self._times[0]
        return (self._digest.images - before) / (now - began) if now > began else 0.0

    def _bar(self, share: float, width: int) -> str:
        return ("#" if self.plain else "█") * round(share * width)
