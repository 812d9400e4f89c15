"""The page of `ostta demo`."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Protocol

import numpy as np
from PIL import Image

from ..bench.records import RunRecords, score_limits
from ..bench.result import Result
from ..bench.spec import is_frozen, name_of
from ..bench.tables import HEADINGS, rows
from ..evaluation.intervals import Interval as Difference
from ..evaluation.intervals import paired_difference
from ..evaluation.records import Records
from . import (
    Axis,
    Bullets,
    Cell,
    Command,
    Figures,
    Folded,
    Grid,
    Interval,
    Intervals,
    Page,
    Part,
    Picture,
    Row,
    Section,
    Shot,
    Strip,
    Table,
    Text,
    html_page,
)
from . import runs as run_charts
from .overview import run_parts
from .runs import Images, Judged, changes, evenly, shot, stream_shots, truth_of

# What each run of the demo is, for somebody who sees the words for the first time.
WHAT = {
    "rosita": "ROSITA learns from the stream as it goes, without labels: images that are surely known or surely unknown train a few "
    "parameters of the model, one step at a time.",
    "field": "The profile `field` is what `ostta.load` does if nothing is named. It trains no parameters. It decides by "
    "how much better an image fits its class than chance and by the recent images that look like it, and gives a probability.",
}


NEXT_PHOTOS = (
    ("Your own photographs, with your own classes, sorted into folders; the page of the stream is in the folder `sorted`.",
     'ostta stream photos/ --classes "dog,elephant,guitar" --out sorted --sort copy'),
    ("What the backbone understands by your class names.",
     'ostta backbone suggest --classes "dog,elephant,guitar"'),
    ("Another method on the same photographs; `ostta ls methods` has them all.",
     "ostta run --backbone photos --method tda --desired sample:photosc --undesired sample:photos_unknownc"),
    ("The setting of the paper on the small model that ships.", "ostta demo"),
)  # fmt: skip
NEXT = (
    ("The same on photographs, clean and under snow.", "ostta demo photos"),
    ("Your own photographs, with your own classes; the page of the stream is in the folder `cats`.",
     'ostta stream photos/ --classes "cat,dog,ship" --out cats'),
    ("Another method on the same images; `ostta ls methods` has them all.",
     "ostta run --method tda --desired sample:cifar10c --undesired sample:mnist --limit 500"),
    ("Other options of a method; `ostta ls options rosita` says what there is.",
     "ostta run --method rosita --set lr=1e-4 --desired sample:cifar10c --undesired sample:mnist --limit 500"),
    ("A table of the paper, scaled to the model that ships, and its page. DATA is the folder of the data sets.",
     "ostta bench run embedded/scores --data DATA --limit 200 && ostta bench report embedded/scores --data DATA --limit 200"),
)  # fmt: skip


READING = [
    "Acc_D: desired images that were accepted and named rightly. Acc_U: undesired images that were rejected. HM: their harmonic mean, "
    "which is high only where both are.",
    "AUROC and FPR95 say how well the score alone tells known from unknown, whatever the threshold.",
    "An interval is over images: how much the difference would vary with other images of the same kind. It says nothing about other orders, "
    "other classes or other models.",
    "“I don't know” is the answer to an image whose score is below the threshold.",
    "ms/step is the time on this machine, as busy as it was; it is no measure of speed.",
]


FIRST = ("HM ↑", "ΔHM")


class DemoImages(Images, Protocol):
    """The images of the demo, also as they were before their corruption."""

    def before_corruption(self, step: int) -> Image.Image | None: ...


@dataclass(frozen=True)
class _Run:
    result: Result
    records: Records
    frozen: _Run | None = None

    @property
    def name(self) -> str:
        return name_of(self.result.spec)

    @cached_property
    def judged(self) -> Judged:
        return Judged("frozen" if self.frozen is None else self.name, RunRecords.of(self.records))

    @cached_property
    def gain(self) -> Difference:
        """HM less that of the frozen run on the same images."""
        before = self if self.frozen is None else self.frozen
        return paired_difference([self.records.outcomes()], [before.records.outcomes()], "hm")


def demo_page(runs: Sequence[tuple[Result, Records]], images: DemoImages) -> str:
    """The page of a frozen run and of others on the same stream."""
    (first, others) = (
        next(run for run in runs if is_frozen(run[0].spec)),
        [run for run in runs if not is_frozen(run[0].spec)],
    )
    frozen = _Run(*first)
    after = [_Run(result, records, frozen) for result, records in others]
    everything = [frozen, *after]
    results = [run.result for run in everything]
    return html_page(
        Page(
            "Known or unknown, then which class",
            "ostta demo",
            [_lead(frozen, after), _setting(frozen)],
            (
                Section("What the stream looked like", list(_stream(frozen, images))),
                Section("What the frozen classifier did", list(_frozen(frozen, everything, images))),
                *(Section(_heading(run), list(_changed(run, everything, images))) for run in after),
                Section("All figures", [_overview(after), _table(results), *_domains(everything)]),
                Section("How to read this", [Bullets([*READING, f"{frozen.result.metrics.convention}."])]),
                Section("What to try next", [Command(text, about) for about, text in _next(frozen)]),
                Section("What was run", list(_what_was_run(everything))),
            ),
        )
    )


def _lead(frozen: _Run, after: Sequence[_Run]) -> str:
    parts = [f"{_percent(run.result.metrics.hm)} with {run.name} ({_points(run.gain)})" for run in after]
    counts = frozen.result.counts
    return (
        f"HM is {_percent(frozen.result.metrics.hm)} with the frozen classifier, {' and '.join(parts)}: the difference, and in brackets its "
        f"95 % interval over images. {counts['desired']:,} desired and {counts['undesired']:,} undesired images, one at a time and without "
        f"labels; one seed ({frozen.result.spec.seed})."
    )


def _setting(frozen: _Run) -> str:
    stream, spec = frozen.result.stream, frozen.result.spec
    unknown = "" if stream.undesired is None else f", unknown images from {stream.undesired.name}"
    return f"Known images from {stream.desired.name} ({stream.desired.origin}){unknown}; backbone `{spec.backbone}`."


def _stream(frozen: _Run, images: DemoImages) -> Iterator[Part]:
    counts, spec = frozen.result.counts, frozen.result.spec
    yield Text(
        f"{counts['desired']:,} photographs of {len(images.classes)} classes ({', '.join(images.classes)}) come mixed with "
        f"{counts['undesired']:,} images that show none of them. The classes are the desired ones; everything else is undesired, and the "
        "right answer to it is “I don't know”. Nobody tells the program which is which."
    )
    run = frozen.judged.run
    desired = list(stream_shots(run, images, desired=True))
    clean = {step: image for step, _ in desired if (image := images.before_corruption(step)) is not None}
    as_shown = [one for step, one in desired if step not in clean]
    if as_shown:
        yield Strip("Desired images", as_shown)
    if clean:
        corrupted = [(step, one) for step, one in desired if step in clean]
        before = [shot(clean[step], f"{one.lines[0]} before the corruption", one.lines) for step, one in corrupted]
        yield Strip(f"Desired images before the {spec.corruption}", before)
        yield Strip(
            f"The same images as the stream shows them: under {spec.corruption}, severity {spec.severity}",
            [one for _, one in corrupted],
        )
    undesired = [one for _, one in stream_shots(run, images, desired=False)]
    if undesired:
        yield Strip("Undesired images", undesired)


def _frozen(frozen: _Run, runs: Sequence[_Run], images: Images) -> Iterator[Part]:
    run = frozen.judged.run
    desired, right = run.labels >= 0, frozen.judged.run.right
    accepted = int((run.known & desired).sum())
    yield Text(
        f"It learns nothing. Of {int(desired.sum()):,} desired images it accepted {accepted:,} and named {int((right & desired).sum()):,} rightly; "
        f"of {int((~desired).sum()):,} undesired ones it rejected {int((right & ~desired).sum()):,}. Each image gets a score, how well it fits "
        "its best class; what is below the threshold is “I don't know”."
    )
    yield _figures(frozen)
    yield run_charts.SCORES_KEY
    yield Grid([_histogram(frozen, runs), _over_time(frozen)])
    for title, steps in (
        ("Desired images that it rejected", np.flatnonzero(desired & ~run.known)),
        ("Desired images that it took for another class", np.flatnonzero(desired & run.known & ~right)),
        ("Undesired images that it took for a class", np.flatnonzero(~desired & run.known)),
    ):
        if len(steps):
            yield Strip(
                f"{title}: {len(steps):,}",
                [_answer(frozen, step, images) for step in evenly(steps)],
            )


def _changed(run: _Run, runs: Sequence[_Run], images: Images) -> Iterator[Part]:
    assert run.frozen is not None
    before, after = run.frozen.judged.run.right, run.judged.run.right
    better, worse = int((~before & after).sum()), int((before & ~after).sum())
    if run.name in WHAT:
        yield Text(WHAT[run.name])
    steps = f"It took {run.result.updates:,} steps." if run.result.updates else "It took no training step."
    yield Text(
        f"{steps} {better:,} images that the frozen classifier got wrong are right now, and {worse:,} that it got right are wrong: "
        f"HM {_points(run.gain)}."
    )
    yield _figures(run)
    yield from changes(run.frozen.judged, run.judged, images, kinds=2)
    yield from _probabilities(run, images)
    yield run_charts.SCORES_KEY
    yield run_charts.ACCURACIES_KEY
    about = f"{run.name}: accuracies over time"
    curves = {"frozen": run.frozen.judged.run, run.name: run.judged.run}
    yield Grid([_histogram(run, runs), Picture(run_charts.accuracies_over_time(curves, about), about)])


def _probabilities(run: _Run, images: Images) -> Iterator[Part]:
    """Images with the probability that they are known, and what rejected images look most like."""
    predictions = run.records.predictions
    given = np.array([each.probability is not None for each in predictions])
    named = np.array([each.most_like is not None for each in predictions])
    for title, steps in (
        ("Accepted, with the probability that the image is known", np.flatnonzero(given & run.judged.run.known)),
        ("Rejected, and what the image looks most like", np.flatnonzero(given & named)),
    ):
        if len(steps):
            yield Strip(f"{title}: {len(steps):,}", [_with_probability(run, step, images) for step in evenly(steps)])


def _with_probability(run: _Run, step: int, images: Images) -> Shot:
    prediction = run.records.predictions[step]
    truth = truth_of(step, run.judged.run, images.classes)
    answer = prediction.label if prediction.label is not None else f"most like {prediction.most_like}"
    said = [answer, f"known with {prediction.probability:.0%}"]
    about = f"Image {step + 1} of the stream, {truth}; {', '.join(said)}"
    return shot(images.image(step), about, [f"shows {truth}", *said], right=bool(run.judged.run.right[step]))


def _domains(runs: Sequence[_Run]) -> Iterator[Part]:
    """The figures of each part of a stream that has several."""
    named = runs[0].result.domains
    if not named:
        return
    headings = ["", *(f"{domain.name}: {figure}" for domain in named for figure in ("HM ↑", "Acc_D ↑", "Acc_U ↑"))]
    lines = []
    for run in runs:
        figures = [
            value
            for domain in run.result.domains
            for value in (domain.metrics.hm, domain.metrics.acc_desired, domain.metrics.acc_undesired)
        ]
        lines.append(Row(run.name, [Cell(_percent(value)) for value in figures], method=run.name))
    yield Table(headings, lines)


def _next(frozen: _Run) -> tuple[tuple[str, str], ...]:
    return NEXT_PHOTOS if frozen.result.spec.backbone == "photos" else NEXT


def _heading(run: _Run) -> str:
    return (
        f"What adapting changed: {run.name}"
        if run.result.updates
        else f"What deciding in another way changed: {run.name}"
    )


def _figures(run: _Run) -> Figures:
    metrics = run.result.metrics
    named = [
        ("HM", metrics.hm),
        ("Acc_D", metrics.acc_desired),
        ("Acc_U", metrics.acc_undesired),
        ("AUROC", metrics.auroc),
    ]
    return Figures([(name, _percent(value)) for name, value in named])


def _histogram(run: _Run, runs: Sequence[_Run]) -> Picture:
    """On the axes of all runs with scores of the same kind."""
    alike = [other.judged.run for other in runs if other.result.spec.score == run.result.spec.score]
    limits = score_limits(alike)
    title = f"{run.name}: scores"
    return Picture(
        run_charts.histogram(run.judged.run, limits, run_charts.histogram_peak(alike, limits), run.name),
        title,
        "The further the two hills stand apart, the easier it is to say “I don't know”.",
    )


def _over_time(run: _Run) -> Picture:
    columns = run.judged.run
    chart = run_charts.scores_over_time(columns, score_limits([columns]), run.name)
    return Picture(
        chart,
        f"{run.name}: scores over time",
        "Each dot is one image when it came; the threshold follows the last 512 scores.",
    )


def _answer(run: _Run, step: int, images: Images) -> Shot:
    truth = truth_of(step, run.judged.run, images.classes)
    said = run.judged.words(step, images.classes)
    return shot(images.image(step), f"Image {step + 1} of the stream, {truth}; {said}", [truth, said], right=False)


def _overview(after: Sequence[_Run]) -> Intervals:
    bounds = [value for run in after for value in (run.gain.low, run.gain.high, 0.0)]
    room = 0.06 * (max(bounds) - min(bounds)) or 1.0
    axis = Axis(min(bounds) - room, max(bounds) + room)
    lines = [
        Interval(
            run.name,
            _points(run.gain),
            run.gain.difference,
            run.gain.low,
            run.gain.high,
            run.gain.excludes_zero,
            run.name,
        )
        for run in after
    ]
    ticks = [(value, f"+{text}" if value > 0 else text) for value, text in axis.shown()]
    return Intervals(
        "HM less that of the frozen classifier", "points, with the 95 % interval", lines, axis.low, axis.high, ticks
    )


def _table(results: list[Result]) -> Table:
    order = sorted(
        range(1, len(HEADINGS)), key=lambda at: FIRST.index(HEADINGS[at]) if HEADINGS[at] in FIRST else len(FIRST)
    )
    lines = [Row(name, [Cell(cells[at - 1].text) for at in order], method=name) for name, cells in rows(results)]
    return Table([HEADINGS[0], *(HEADINGS[at] for at in order)], lines)


def _what_was_run(runs: Sequence[_Run]) -> Iterator[Part]:
    for remark in dict.fromkeys(remark for run in runs for remark in run.result.remarks):
        yield Text(remark, "note")
    for run in runs:
        yield Folded(run.name, list(run_parts([run.result])))


def _points(gain: Difference) -> str:
    return f"{gain.difference:+.2f} [{gain.low:+.2f}, {gain.high:+.2f}]"


def _percent(value: float | None) -> str:
    return "–" if value is None else f"{value:.2f}"
