"""The sentences below a table: what the figures are, what they do not cover, and what is missing."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator

from ..core.words import counted
from ..evaluation.intervals import METRICS as RESAMPLED
from ..evaluation.intervals import RESAMPLES
from .against_frozen import ranks_of
from .figures import DELTA, Difference, Figure, SuiteFigures
from .folder import FAILED
from .metric_values import lower_is_better, metric_name

CONVENTIONS = {
    "interpolated": "FPR95 is the share of undesired images accepted where 95 % of the desired ones are, interpolated on the ROC "
    "polyline as in the published code.",
    "strict": "FPR95 is the share of undesired images accepted at the first threshold that accepts at least 95 % of the desired ones, "
    "with nothing interpolated.",
    "undesired": "FPR95 has the sides exchanged: the share of desired images rejected where 95 % of the undesired ones are, "
    "interpolated.",
}


BOLD = (
    "Bold: the best figure of a column, backbone and stream, where paired intervals tell it apart from every other row there. "
    "Where none is bold, none is told apart."
)


def footnotes(figures: SuiteFigures) -> list[str]:
    """In the order of their weight; only those that apply."""
    suite, collected = figures.suite, figures.collected
    results = [result for _, _, result in figures.distinct]
    sentences = [collected.missing, _seeds(figures), BOLD if figures.any_best else ""]
    if any(figures.frozen_row(row, column) for row in figures.rows for column in figures.columns):
        sentences.append("Δ is the difference to the frozen row of the same backbone and stream, seed by seed.")
    sentences += _intervals(figures)
    sentences += _ranks(figures)
    if any(result.spec.scenario.kind == "continual" for result in results):
        sentences.append(
            "The HM of a continual stream is the mean of its domains' HM; the other figures are over all its images."
        )
    sentences.append(_shares(figures))
    if "fpr95" in suite.metrics:
        sentences.append(CONVENTIONS[figures.fpr95])
    if results:
        sentences.append("ms/step is the mean over a run's steps (encode, decide, update), preprocessing left out.")
    if any(result.cached_features for result in results):
        sentences.append(
            "No ms/step where image features came from earlier runs on the same images: the figures are the same."
        )
    busy = sum(result.busy and not result.cached_features for result in results)
    if busy:
        sentences.append(
            f"Busy: {busy} of {len(results)} runs shared the machine with other work, and their ms/step is longer than their own; the "
            "result files say how long each waited for a core."
        )
    sentences += [_of_backbone(figures), _gaps(figures), suite.remark, *_cautions(figures)]
    return [sentence for sentence in sentences if sentence]


def _seeds(figures: SuiteFigures) -> str:
    seeds = sorted({cell.seed for cell in figures.collected.cells})
    if len(seeds) == 1:
        return f"One seed ({seeds[0]}): there is no spread."
    spread = f"Mean ± sample standard deviation over the seeds {', '.join(map(str, seeds))}, as far as they are there."
    # Without a limit there is nothing to draw from.
    if any(cell.spec.draw != "images" or cell.spec.limit is None for cell in figures.collected.cells):
        spread += (
            " Seeds order the same images, so this spread does not say how other images would do: with a limit and "
            '`draw = "images"` each seed draws its own.'
        )
    return spread


def _intervals(figures: SuiteFigures) -> Iterator[str]:
    """What the brackets behind differences are, what a star means, and why there is no bracket."""
    shown = [figure for figure in _differences(figures) if figure.mean is not None]
    over = Counter(figure.over for figure in shown)
    drawn = f"from {RESAMPLES:,} resamples of the images that both runs saw, desired and undesired ones apart"
    if over["images"]:
        yield (
            f"In brackets: the paired 95 % interval of a difference over images, {drawn}. The answers stay as they were given, so it "
            "covers the choice of the images that are scored. It does not cover what a method would have learned from other images "
            "or in another order: for methods that remember it is too narrow, of AUROC above all."
        )
    if over["images and seeds"]:
        yield (
            f"In brackets{', with several seeds' if over['images'] else ''}: the paired 95 % interval of a difference over images and "
            f"seeds, {drawn}, and from the spread between the seeds (Student's t). It covers {_covered(figures)}."
        )
    if over["seeds"]:
        yield (
            "Where a run kept no records, the bracket is the paired 95 % interval over the seeds, which draw images of their own "
            "(Student's t)."
        )
    if any(kind is not None for kind in over):
        yield (
            "* the interval excludes zero. Stars and bold figures of one metric are one family: Holm's correction is for all comparisons of "
            "that metric in these tables, to the frozen row, to rosita and of the best row with the others."
        )
    if over[None]:
        yield _without(figures, over[None], len(shown))
    if figures.groups and len({each.against for each in figures.shown_differences}) > 1:
        worst = "highest" if lower_is_better(figures.headline) else "lowest"
        yield (
            "Δ better is the mean over streams of the difference to the better of the frozen row and rosita on each stream, and "
            f"{worst} the {worst} of these; rows without all streams of a group have none."
        )


def _ranks(figures: SuiteFigures) -> Iterator[str]:
    """How ranks were told apart, or why there are none."""
    found = list(ranks_of(figures))
    if any(one.ranks is not None for one in found):
        yield (
            "Ranks: 1 is the best row of a stream, equals share theirs, and each stream counts once. Rows are told apart by Wilcoxon's "
            "signed ranks over streams, pair by pair, by Holm's correction, where Friedman's test says that rows differ at all; unlike "
            "Nemenyi's critical difference, it does not depend on which other rows are in the table. Streams that share images are "
            "taken as independent, which makes it look surer than it is."
        )
    yield from (one.why_not for one in found if one.ranks is None)


def _covered(figures: SuiteFigures) -> str:
    if any(result.spec.draw != "images" for _, _, result in figures.distinct):
        return "other images and other orders, but not what a method would have learned from other images, as the seeds reorder the same ones"
    return "other streams of the same kind, as each seed draws its own images"


def _without(figures: SuiteFigures, lacking: int, shown: int) -> str:
    """Why some differences, or all, have no interval."""
    reason = why_no_interval(figures)
    several = len({cell.seed for cell in figures.collected.cells}) > 1
    seeds = "seeds that order the same images do not say how other images would do" if several else "there is one seed"
    which = "any difference" if lacking == shown else f"{lacking} of {shown} differences"
    how = "; `--records` carries such runs out again and keeps them" if reason.endswith("no records") else ""
    return f"No interval can be given for {which}: {reason}, and {seeds}{how}."


def why_no_interval(figures: SuiteFigures) -> str:
    """Why a difference has no interval over images: a clause without a capital letter and a full stop."""
    metrics = dict.fromkeys(each.metric for each in figures.shown_differences)
    other = next((metric for metric in metrics if metric not in RESAMPLED), None)
    if other is not None:
        return f"{metric_name(other)} cannot be resampled over images"
    results = [result for _, _, result in figures.distinct]
    bare = sum(result.records is None for result in results)
    return f"{bare} of {len(results)} runs kept no records" if bare else "the records are not of the same images"


def _differences(figures: SuiteFigures, only: Difference | None = None) -> Iterator[Figure]:
    for row in figures.rows:
        for column in figures.columns:
            for difference in figures.shown_differences if only is None else (only,):
                if (figure := figures.figure(row, column, difference.name)) is not None:
                    yield figure


def _shares(figures: SuiteFigures) -> str:
    """The shares that AUPR is to be read beside."""
    if not {"aupr_known", "aupr_unknown"} & set(figures.suite.metrics):
        return ""
    shares: dict[str, str] = {}
    for _, column, result in figures.distinct:
        known, unknown = result.counts["desired"], result.counts["undesired"]
        if known + unknown:
            shares[" / ".join(column)] = f"{100 * unknown / (known + unknown):.1f} %"
    listed = ", ".join(f"{column} {share}" for column, share in shares.items())
    return f"A random score has the share of its positive side as AUPR. Share of unknown images: {listed}."


def _of_backbone(figures: SuiteFigures) -> str:
    """The options of methods that are the backbone's default instead of the published value."""
    methods: dict[str, set[str]] = {}
    for _, _, result in figures.distinct:
        options, sources = result.options.get("method", {}), result.option_sources.get("method", {})
        for name in (name for name, source in sources.items() if source == "backbone"):
            methods.setdefault(f"{name} = {options.get(name)} on {result.spec.backbone}", set()).add(result.spec.method)
    found = "; ".join(f"{setting} ({', '.join(sorted(of))})" for setting, of in sorted(methods.items()))
    return f"Not the published value, but a default of the backbone: {found}." if found else ""


def _gaps(figures: SuiteFigures) -> str:
    """Why so many gaps are dashes, by reason."""
    compared = [
        figure
        for row in figures.rows
        for column in figures.columns
        for metric in (*figures.suite.metrics, DELTA)
        if (figure := figures.figure(row, column, metric)) is not None and figure.paper is not None
    ]
    if not compared:
        return ""
    reasons = Counter(figure.apart for figure in compared if figure.apart)
    why = "; ".join(f"{reason} ({count})" for reason, count in reasons.most_common())
    return f"Gap: ours minus the paper's, a dash where the two cannot be compared{': ' + why if why else ''}."


def _cautions(figures: SuiteFigures) -> list[str]:
    """What a reader would not see in the figures: files that disagree about what they are."""
    collected, cautions = figures.collected, list[str]()
    strange = figures.paired.unusable
    if strange:
        cautions.append(f"No intervals from {len(strange)} files of records that cannot be used, such as {strange[0]}.")
    weights: dict[str, set[str]] = {}
    for _, _, result in figures.distinct:
        weights.setdefault(result.spec.backbone, set()).add(result.weight_hash)
    for backbone, hashes in weights.items():
        if len(hashes) > 1:
            cautions.append(f"The results of {backbone} come from {len(hashes)} different sets of weights.")
    if figures.other_streams:
        cautions.append(
            f"{counted(figures.other_streams, 'run')} without a difference: the images are not those of the row to compare with, or one "
            "of the result files is of an older version. Run both on the same data again."
        )
    if collected.older:
        cautions.append(f"{collected.older} older results with the same spec as a newer one are left out.")
    if collected.unreadable:
        names = ", ".join(collected.unreadable[:3]) + (", ..." if len(collected.unreadable) > 3 else "")
        cautions.append(
            f"{len(collected.unreadable)} JSON files in {collected.folder} are no result files of this version: {names}."
        )
    if collected.failures:
        cautions.append(f"{len(collected.failures)} runs failed; {collected.folder / FAILED} says why.")
    return cautions
