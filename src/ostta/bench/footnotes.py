"""Sentences below a table: the meaning of the figures, their limits, and what is missing."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator

from ..core.text import counted
from ..evaluation.intervals import METRICS as RESAMPLED
from ..evaluation.intervals import RESAMPLES
from .against_frozen import ranks_of
from .figures import DELTA, SuiteFigures
from .folder import FAILED
from .result import lower_is_better, metric_name

CONVENTIONS = {
    "interpolated": "FPR95 is the share of unknown images accepted at the threshold that accepts 95 % of the desired "
    "images, interpolated on the ROC curve as in the published code.",
    "strict": "FPR95 is the share of unknown images accepted at the first threshold that accepts at least 95 % of the "
    "known images, without interpolation.",
    "undesired": "FPR95 has the sides exchanged: it is the share of known images rejected at the threshold that "
    "rejects 95 % of the unknown images, interpolated.",
}


BOLD = (
    "Bold: the best figure of a column, backbone and stream, if its differences to all other rows are significant by "
    "paired intervals."
)


def footnotes(figures: SuiteFigures) -> list[str]:
    """Return the sentences that apply, the most important first."""
    suite, collected = figures.suite, figures.collected
    results = [result for _, _, result in figures.distinct]
    sentences = [collected.missing, _seeds(figures), BOLD if figures.any_best else ""]
    if any(figures.frozen_row(row, column) for row in figures.rows for column in figures.columns):
        sentences.append("Δ is the difference to the frozen row of the same backbone and stream, seed by seed.")
    sentences += _intervals(figures)
    sentences += _ranks(figures)
    if any(result.spec.scenario.kind == "continual" for result in results):
        sentences.append(
            "The HM of a continual stream is the mean HM of its domains; the other figures are over all images."
        )
    sentences.append(_shares(figures))
    if "fpr95" in suite.metrics:
        sentences.append(CONVENTIONS[figures.fpr95])
    if results:
        sentences.append("ms/step is the mean over the steps of a run (encode, decide, update), without preprocessing.")
    if any(result.cached_features for result in results):
        sentences.append("Runs on cached image features have no ms/step; their figures are the same.")
    busy = sum(result.busy and not result.cached_features for result in results)
    if busy:
        sentences.append(
            f"Busy: {busy} of {len(results)} runs shared the machine with other work, which made their ms/step longer; "
            "the result files have the share of time that each waited for a core."
        )
    sentences += [_of_backbone(figures), _gaps(figures), suite.remark, *_cautions(figures)]
    return [sentence for sentence in sentences if sentence]


def _seeds(figures: SuiteFigures) -> str:
    seeds = sorted({cell.seed for cell in figures.collected.cells})
    if len(seeds) == 1:
        return f"One seed ({seeds[0]}): there is no spread."
    spread = f"Mean ± sample standard deviation over the seeds {', '.join(map(str, seeds))} that have results."
    # Without a limit, all images are shown and none are drawn.
    if any(cell.spec.draw != "images" or cell.spec.limit is None for cell in figures.collected.cells):
        spread += (
            " The seeds reorder the same images, so this spread does not cover other images: with a limit and "
            '`draw = "images"`, each seed draws its own images.'
        )
    return spread


def _intervals(figures: SuiteFigures) -> Iterator[str]:
    """Explain brackets and stars, and why a difference has no bracket."""
    names = [difference.name for difference in figures.shown_differences]
    shown = [figure for figure in figures.all_of(*names) if figure.mean is not None]
    over = Counter(figure.over for figure in shown)
    drawn = f"from {RESAMPLES:,} resamples of the images of both runs, known and unknown images separately"
    if over["images"]:
        yield (
            f"In brackets: the paired 95 % interval of a difference over images, {drawn}. The answers stay as "
            "recorded, so the interval covers the choice of the evaluated images. It does not cover what a method "
            "would have learned from other images or in another order: for methods that remember images it is too "
            "narrow, most of all for AUROC."
        )
    if over["images and seeds"]:
        yield (
            f"In brackets{', with several seeds' if over['images'] else ''}: the paired 95 % interval of a difference "
            f"over images and seeds, {drawn}, and from the spread between the seeds (Student's t). It covers "
            f"{_covered(figures)}."
        )
    if over["seeds"]:
        yield (
            "For runs without records, the bracket is the paired 95 % interval over the seeds, each of which draws "
            "its own images (Student's t)."
        )
    if any(kind is not None for kind in over):
        yield (
            "* The interval excludes zero, also after Holm's correction. The correction covers all comparisons of one "
            "metric in these tables: with the frozen row, with rosita, and of the best row with the others."
        )
    if over[None]:
        yield _without(figures, over[None], len(shown))
    if figures.groups and len({each.against for each in figures.shown_differences}) > 1:
        worst = "highest" if lower_is_better(figures.headline) else "lowest"
        yield (
            "Δ better is the mean over streams of the difference to the better of the frozen row and rosita on each "
            f"stream; {worst} is the {worst} of these differences. Rows without all streams of a group have neither."
        )


def _ranks(figures: SuiteFigures) -> Iterator[str]:
    """Explain how ranks are compared, or why there are none."""
    found = list(ranks_of(figures))
    if any(one.ranks is not None for one in found):
        yield (
            "Ranks: 1 is the best row of a stream; equal figures share a rank. Pairs of rows are compared by "
            "Wilcoxon's signed-rank test over streams with Holm's correction, if Friedman's test finds any "
            "difference. Unlike Nemenyi's critical difference, the comparison does not depend on the other rows. "
            "Streams that share images count as independent, which overstates the significance."
        )
    yield from (one.why_not for one in found if one.ranks is None)


def _covered(figures: SuiteFigures) -> str:
    if any(result.spec.draw != "images" for _, _, result in figures.distinct):
        return (
            "other images and other orders, but not what a method would have learned from other images, because the "
            "seeds reorder the same images"
        )
    return "other streams of the same kind, because each seed draws its own images"


def _without(figures: SuiteFigures, lacking: int, shown: int) -> str:
    """Explain why some or all differences have no interval."""
    reason = why_no_interval(figures)
    several = len({cell.seed for cell in figures.collected.cells}) > 1
    seeds = "seeds that reorder the same images do not cover other images" if several else "there is one seed"
    which = "any difference" if lacking == shown else f"{lacking} of {shown} differences"
    how = "; `--records` carries out such runs again and keeps their records" if reason.endswith("no records") else ""
    return f"There is no interval for {which}: {reason}, and {seeds}{how}."


def why_no_interval(figures: SuiteFigures) -> str:
    """Return why a difference has no interval over images, as a clause without capital letter and full stop."""
    metrics = dict.fromkeys(each.metric for each in figures.shown_differences)
    other = next((metric for metric in metrics if metric not in RESAMPLED), None)
    if other is not None:
        return f"{metric_name(other)} cannot be resampled over images"
    results = [result for _, _, result in figures.distinct]
    bare = sum(result.records is None for result in results)
    if bare:
        return f"{bare} of {len(results)} runs kept no records"
    unreadable = len(figures.paired.unreadable)
    return (
        f"{counted(unreadable, 'file')} of records cannot be read"
        if unreadable
        else "the records are not of the same images"
    )


def _shares(figures: SuiteFigures) -> str:
    """Return the shares of unknown images, which are the AUPR of a random score."""
    if not {"aupr_known", "aupr_unknown"} & set(figures.suite.metrics):
        return ""
    shares: dict[str, str] = {}
    for _, column, result in figures.distinct:
        known, unknown = result.counts["desired"], result.counts["undesired"]
        if known + unknown:
            shares[" / ".join(column)] = f"{100 * unknown / (known + unknown):.1f} %"
    listed = ", ".join(f"{column} {share}" for column, share in shares.items())
    return f"The AUPR of a random score is the share of its positive side. Share of unknown images: {listed}."


def _of_backbone(figures: SuiteFigures) -> str:
    """Return the options of methods whose value is a default of the backbone and not the published value."""
    methods: dict[str, set[str]] = {}
    for _, _, result in figures.distinct:
        options, sources = result.options.get("method", {}), result.option_sources.get("method", {})
        for name in (name for name, source in sources.items() if source == "backbone"):
            methods.setdefault(f"{name} = {options.get(name)} on {result.spec.backbone}", set()).add(result.spec.method)
    found = "; ".join(f"{setting} ({', '.join(sorted(of))})" for setting, of in sorted(methods.items()))
    return f"Options with a default of the backbone instead of the published value: {found}." if found else ""


def _gaps(figures: SuiteFigures) -> str:
    """Return why gaps to the paper are missing, by reason."""
    compared = [figure for figure in figures.all_of(*figures.suite.metrics, DELTA) if figure.paper is not None]
    if not compared:
        return ""
    reasons = Counter(figure.not_comparable for figure in compared if figure.not_comparable)
    why = "; ".join(f"{reason} ({count})" for reason, count in reasons.most_common())
    return f"Gap: our figure minus the paper's; a dash if the two cannot be compared{': ' + why if why else ''}."


def _cautions(figures: SuiteFigures) -> list[str]:
    """Return cautions about the result files: unusable records, different weights, old, unreadable and failed runs."""
    collected, cautions = figures.collected, list[str]()
    for files, problem in (
        (figures.paired.unreadable, "cannot be read"),
        (figures.paired.different, "cannot be used for intervals because of other images"),
    ):
        if files:
            cautions.append(f"{counted(len(files), 'file')} of records {problem}, such as {files[0]}.")
    weights: dict[str, set[str]] = {}
    for _, _, result in figures.distinct:
        weights.setdefault(result.spec.backbone, set()).add(result.weight_hash)
    for backbone, hashes in weights.items():
        if len(hashes) > 1:
            cautions.append(f"The results of {backbone} come from {len(hashes)} different sets of weights.")
    if figures.other_streams:
        cautions.append(
            f"{counted(figures.other_streams, 'run')} without a difference: the reference row has other images. Run "
            "both on the same data again."
        )
    if collected.older:
        cautions.append(f"Older results with the same spec as a newer result are left out: {collected.older}.")
    if collected.unreadable:
        names = ", ".join(collected.unreadable[:3]) + (", ..." if len(collected.unreadable) > 3 else "")
        cautions.append(
            f"JSON files in {collected.folder} that are not result files of this version: "
            f"{len(collected.unreadable)} ({names})."
        )
    if collected.failures:
        cautions.append(
            f"{counted(len(collected.failures), 'run')} failed; the reasons are in {collected.folder / FAILED}."
        )
    return cautions
