"""The page of `ostta demo`."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Protocol

import numpy as np
from numpy.typing import NDArray
from PIL import Image

from ..bench.records import RunRecords, score_limits
from ..bench.result import Result, number
from ..bench.spec import is_frozen, name_of
from ..bench.tables import HEADINGS, TableCell, rows
from ..evaluation.intervals import Interval as Difference
from ..evaluation.intervals import paired_difference
from ..evaluation.loop import Records
from .charts import (
    ACCURACIES_KEY,
    SCORES_KEY,
    accuracies_over_time,
    histogram,
    histogram_peak,
    scores_over_time,
)
from .images import Images, NamedRun, answered_thumbnail, changes, evenly_spaced, stream_thumbnails, thumbnail, truth_of
from .parts import (
    Bullets,
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
    Strip,
    Table,
    Text,
    Thumbnail,
    axis_around,
    html_page,
)
from .sections import run_parts

# Introductions of the methods.
WHAT = {
    "rosita": "ROSITA learns from the stream without labels: images that are reliably known or reliably unknown train "
    "a few parameters of the model, one step at a time.",
    "field": "The profile `field` is the default of `ostta.load`. It trains no parameters. It decides by how much "
    "better an image fits its class than chance and by similar recent images, and returns a probability.",
}


NEXT_PHOTOS = (
    ("Your own photographs with your own classes, sorted into folders; the page is in the folder `sorted`.",
     'ostta stream photos/ --classes "dog,elephant,guitar" --out sorted --sort copy'),
    ("Class names that the backbone knows, similar to yours.",
     'ostta backbone suggest --classes "dog,elephant,guitar"'),
    ("Another method on the same photographs; `ostta ls methods` lists all methods.",
     "ostta run --backbone photos --method tda --desired sample:photosc --undesired sample:photos_unknownc"),
    ("The setting of the paper on the embedded model.", "ostta demo"),
)  # fmt: skip
NEXT = (
    ("The same on photographs, clean and under snow.", "ostta demo photos"),
    ("Your own photographs with your own classes; the page is in the folder `cats`.",
     'ostta stream photos/ --classes "cat,dog,ship" --out cats'),
    ("Another method on the same images; `ostta ls methods` lists all methods.",
     "ostta run --method tda --desired sample:cifar10c --undesired sample:mnist --limit 500"),
    ("Other options of a method; `ostta ls options rosita` lists all options.",
     "ostta run --method rosita --set lr=1e-4 --desired sample:cifar10c --undesired sample:mnist --limit 500"),
    ("A table of the paper, scaled to the embedded model, and its page. DATA is the folder of the data sets.",
     "ostta bench run embedded/scores --data DATA --limit 200 && "
     "ostta bench report embedded/scores --data DATA --limit 200"),
)  # fmt: skip


READING = [
    "Acc_D: share of known images that are accepted with the right class. Acc_U: share of unknown images that are "
    "rejected. HM: harmonic mean of the two, which is high only if both are.",
    "AUROC and FPR95 measure how well the score separates known from unknown images, independent of the threshold.",
    "The interval is over images: it covers other images of the same kind. It does not cover other orders, classes or "
    "models.",
    "An image whose score is below the threshold is classified as unknown. “0.14 < 0.18” below an image is its score "
    "and the threshold.",
    "ms/step is the time on this machine under its current load; it is not a measure of speed.",
]


FIRST = ("HM ↑", "ΔHM")


class DemoImages(Images, Protocol):
    """The images of the demo, also without their corruption."""

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
    def judged(self) -> NamedRun:
        return NamedRun("frozen" if self.frozen is None else self.name, RunRecords.of(self.records))

    @cached_property
    def gain(self) -> Difference:
        """The HM minus that of the frozen run on the same images."""
        before = self if self.frozen is None else self.frozen
        return paired_difference([self.records.outcomes()], [before.records.outcomes()], "hm")


def demo_page(runs: Sequence[tuple[Result, Records]], images: DemoImages) -> str:
    """Return the page of a frozen run and of other runs on the same stream."""
    frozen = next(_Run(*run) for run in runs if is_frozen(run[0].spec))
    after = [_Run(result, records, frozen) for result, records in runs if not is_frozen(result.spec)]
    everything = [frozen, *after]
    return html_page(
        Page(
            "Known or unknown, then which class",
            "ostta demo",
            [_lead(frozen, after), _setting(frozen)],
            (
                Section("The stream", list(_stream(frozen, images))),
                Section("The frozen classifier", list(_frozen(frozen, everything, images))),
                *(Section(_heading(run), list(_changed(run, everything, images))) for run in after),
                Section("All figures", [_overview(after), _table(everything), *_domains(everything)]),
                Section("How to read this", [Bullets([*READING, f"{frozen.result.metrics.convention}."])]),
                Section("Next steps", [Command(text, about) for about, text in _next(frozen)]),
                Section("Commands and settings", list(_what_was_run(everything))),
            ),
        )
    )


def _lead(frozen: _Run, after: Sequence[_Run]) -> str:
    parts = [f"{_percent(run.result.metrics.hm)} with {run.name} ({_points(run.gain)})" for run in after]
    counts = frozen.result.counts
    return (
        "HM, the harmonic mean of the accuracies on known and on unknown images, is "
        f"{_percent(frozen.result.metrics.hm)} with the frozen classifier, {' and '.join(parts)}; in parentheses "
        f"the difference with its 95 % interval over images. {counts['desired']:,} known and "
        f"{counts['undesired']:,} unknown images, one at a time and without labels; one seed "
        f"({frozen.result.spec.seed})."
    )


def _setting(frozen: _Run) -> str:
    stream, spec = frozen.result.stream, frozen.result.spec
    unknown = "" if stream.undesired is None else f", unknown images from {stream.undesired.name}"
    return f"Known images from {stream.desired.name} ({stream.desired.origin}){unknown}; backbone `{spec.backbone}`."


def _stream(frozen: _Run, images: DemoImages) -> Iterator[Part]:
    counts, spec = frozen.result.counts, frozen.result.spec
    yield Text(
        f"{counts['desired']:,} images of {len(images.classes)} classes ({', '.join(images.classes)}) are mixed with "
        f"{counts['undesired']:,} images of other things. Images of the classes are known; all others are unknown, and "
        "the right answer to them is “unknown”. The program has no labels."
    )
    run = frozen.judged.run
    desired = list(stream_thumbnails(run, images, desired=True))
    clean = {step: image for step, _ in desired if (image := images.before_corruption(step)) is not None}
    as_shown = [one for step, one in desired if step not in clean]
    if as_shown:
        yield Strip("Known images", as_shown)
    if clean:
        corrupted = [(step, one) for step, one in desired if step in clean]
        before = [thumbnail(clean[step], f"{one.lines[0]} without corruption", one.lines) for step, one in corrupted]
        yield Strip("Known images without corruption", before)
        title = f"The same images in the stream: {spec.corruption}, severity {spec.severity}"
        yield Strip(title, [one for _, one in corrupted])
    undesired = [one for _, one in stream_thumbnails(run, images, desired=False)]
    if undesired:
        yield Strip("Unknown images", undesired)


def _frozen(frozen: _Run, runs: Sequence[_Run], images: Images) -> Iterator[Part]:
    run = frozen.judged.run
    desired, right = run.labels >= 0, frozen.judged.run.right
    accepted = int((run.known & desired).sum())
    yield Text(
        f"The frozen classifier does not adapt. It accepted {accepted:,} of {int(desired.sum()):,} known images, "
        f"{int((right & desired).sum()):,} of them with the right class, and rejected "
        f"{int((right & ~desired).sum()):,} of {int((~desired).sum()):,} unknown images. The score of an image is its "
        "similarity to the best class; an image with a score below the threshold is classified as unknown."
    )
    yield _figures(frozen)
    yield SCORES_KEY
    yield Grid([_histogram(frozen, runs), _over_time(frozen)])
    selections = {
        "Known images that were rejected": desired & ~run.known,
        "Known images with a wrong class": desired & run.known & ~right,
        "Unknown images that were accepted": ~desired & run.known,
    }
    yield from _strips(selections, lambda step: answered_thumbnail(step, [frozen.judged], images))


def _changed(run: _Run, runs: Sequence[_Run], images: Images) -> Iterator[Part]:
    assert run.frozen is not None
    before, after = run.frozen.judged.run.right, run.judged.run.right
    better, worse = int((~before & after).sum()), int((before & ~after).sum())
    if run.name in WHAT:
        yield Text(WHAT[run.name])
    steps = f"It made {run.result.updates:,} updates." if run.result.updates else "It made no updates."
    yield Text(
        f"{steps} {better:,} wrong answers of the frozen classifier became right, and {worse:,} right answers became "
        f"wrong: HM {_points(run.gain)}."
    )
    yield _figures(run)
    yield from changes(run.frozen.judged, run.judged, images, kinds=2)
    yield from _probabilities(run, images)
    yield SCORES_KEY
    yield ACCURACIES_KEY
    about = f"{run.name}: accuracies over time"
    curves = {"frozen": run.frozen.judged.run, run.name: run.judged.run}
    yield Grid([_histogram(run, runs), Picture(accuracies_over_time(curves, about), about)])


def _probabilities(run: _Run, images: Images) -> Iterator[Part]:
    """Yield images with the probability that they are known, and what rejected images look most like."""
    predictions = run.records.predictions
    given = np.array([each.probability is not None for each in predictions])
    named = np.array([each.most_like is not None for each in predictions])
    selections = {
        "Accepted, with the probability that the image is known": given & run.judged.run.known,
        "Rejected, and what the image looks most like": given & named,
    }
    yield from _strips(selections, lambda step: _with_probability(run, step, images))


def _strips(selections: Mapping[str, NDArray[np.bool_]], draw: Callable[[int], Thumbnail]) -> Iterator[Strip]:
    """Yield a strip for each selection of images that is not empty."""
    for title, selected in selections.items():
        steps = np.flatnonzero(selected)
        if len(steps):
            yield Strip(f"{title}: {len(steps):,}", [draw(step) for step in evenly_spaced(steps)])


def _with_probability(run: _Run, step: int, images: Images) -> Thumbnail:
    prediction = run.records.predictions[step]
    truth = truth_of(step, run.judged.run, images.classes)
    answer = prediction.label if prediction.label is not None else f"most like {prediction.most_like}"
    answers = [answer, f"probability {prediction.probability:.2f}"]
    about = f"Image {step + 1} of the stream, {truth}; {', '.join(answers)}"
    return thumbnail(images.image(step), about, [f"shows {truth}", *answers], right=bool(run.judged.run.right[step]))


def _domains(runs: Sequence[_Run]) -> Iterator[Part]:
    """Yield the figures of each domain if the stream has several."""
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
        lines.append(Row(run.name, [TableCell(value, "hm") for value in figures], method=run.name))
    yield Table(headings, lines)


def _next(frozen: _Run) -> tuple[tuple[str, str], ...]:
    return NEXT_PHOTOS if frozen.result.spec.backbone == "photos" else NEXT


def _heading(run: _Run) -> str:
    return (
        f"Changes by adaptation: {run.name}" if run.result.updates else f"Changes by another decision rule: {run.name}"
    )


def _figures(run: _Run) -> Figures:
    metrics = run.result.metrics
    values = {"HM": metrics.hm, "Acc_D": metrics.acc_desired, "Acc_U": metrics.acc_undesired, "AUROC": metrics.auroc}
    return Figures([(name, _percent(value)) for name, value in values.items()])


def _histogram(run: _Run, runs: Sequence[_Run]) -> Picture:
    """Draw the histogram on the axes of all runs with the same score."""
    alike = [other.judged.run for other in runs if other.result.spec.score == run.result.spec.score]
    limits = score_limits(alike)
    chart = histogram(run.judged.run, limits, histogram_peak(alike, limits), run.name)
    meaning = "The less the two distributions overlap, the better the score separates known from unknown images."
    return Picture(chart, f"{run.name}: scores", meaning)


def _over_time(run: _Run) -> Picture:
    records = run.judged.run
    chart = scores_over_time(records, score_limits([records]), run.name)
    meaning = "Each dot is one image; the threshold follows the last 512 scores."
    return Picture(chart, f"{run.name}: scores over time", meaning)


def _overview(after: Sequence[_Run]) -> Intervals:
    gains = {run.name: run.gain for run in after}
    axis = axis_around([value for gain in gains.values() for value in (gain.low, gain.high, 0.0)])
    lines = [
        Interval(name, _points(gain), gain.difference, gain.low, gain.high, gain.excludes_zero, method=name)
        for name, gain in gains.items()
    ]
    about = "in points, with the 95 % interval"
    return Intervals("HM minus that of the frozen classifier", about, lines, axis, signed=True)


def _table(runs: Sequence[_Run]) -> Table:
    stub, *headings = HEADINGS
    order = sorted(headings, key=lambda heading: FIRST.index(heading) if heading in FIRST else len(FIRST))
    lines = [
        Row(name, [cells[headings.index(heading)] for heading in order], method=name)
        for name, cells in rows([run.result for run in runs])
    ]
    return Table([stub, *order], lines)


def _what_was_run(runs: Sequence[_Run]) -> Iterator[Part]:
    for remark in dict.fromkeys(remark for run in runs for remark in run.result.remarks):
        yield Text(remark, "note")
    for run in runs:
        yield Folded(run.name, list(run_parts([run.result])))


def _points(gain: Difference) -> str:
    return TableCell(gain.difference, "hm", True, gain.low, gain.high).text


def _percent(value: float | None) -> str:
    return number(value, "hm")
