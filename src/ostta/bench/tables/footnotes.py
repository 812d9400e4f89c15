"""The sentences below a table: what the figures are, what they are not, and what is missing."""

from __future__ import annotations

from collections import Counter

from .suite_figures import DELTA, Grid
from .suite_results import FAILED

CONVENTIONS = {
    "interpolated": "FPR95 is the share of undesired images accepted where 95 % of the desired ones are, interpolated on the ROC "
    "polyline as in the published code.",
    "strict": "FPR95 is the share of undesired images accepted at the first threshold that accepts at least 95 % of the desired ones, "
    "with nothing interpolated.",
    "undesired": "FPR95 has the sides exchanged: the share of desired images rejected where 95 % of the undesired ones are, "
    "interpolated.",
}
BOLD = (
    "Bold: the best mean of a column, backbone and stream, and every mean no further from it than the root of the sum of their squared "
    "standard deviations; of a single seed only the best figure and its equals, which says nothing about other seeds."
)


def notes(grid: Grid) -> list[str]:
    """In the order of their weight; only those that apply."""
    suite, gathered = grid.suite, grid.gathered
    results = [result for _, _, result in grid.distinct]
    sentences = [gathered.missing, _seeds(grid), BOLD if grid.any_best else ""]
    if any(grid.frozen_row(row, column) for row in grid.rows for column in grid.columns):
        sentences.append("Δ is the difference to the frozen row of the same backbone and stream, seed by seed.")
    if any(result.spec.scenario.kind == "continual" for result in results):
        sentences.append(
            "The HM of a continual stream is the mean of its domains' HM; the other figures are over all its images."
        )
    if "fpr95" in suite.metrics:
        sentences.append(CONVENTIONS[grid.fpr95])
    if results:
        sentences.append("ms/step is the mean over a run's steps (encode, decide, update), preprocessing left out.")
    sentences += [_gaps(grid), suite.remark, *_cautions(grid)]
    return [sentence for sentence in sentences if sentence]


def _seeds(grid: Grid) -> str:
    seeds = sorted({cell.seed for cell in grid.gathered.cells})
    if len(seeds) == 1:
        return f"One seed ({seeds[0]}): there is no spread."
    return f"Mean ± sample standard deviation over the seeds {', '.join(map(str, seeds))}, as far as they are there."


def _gaps(grid: Grid) -> str:
    """Why so many gaps are dashes, by reason."""
    figures = [
        figure
        for row in grid.rows
        for column in grid.columns
        for metric in (*grid.suite.metrics, DELTA)
        if (figure := grid.figure(row, column, metric)) is not None and figure.paper is not None
    ]
    if not figures:
        return ""
    reasons = Counter(figure.apart for figure in figures if figure.apart)
    why = "; ".join(f"{reason} ({count})" for reason, count in reasons.most_common())
    return f"Gap: ours minus the paper's, a dash where the two cannot be compared{': ' + why if why else ''}."


def _cautions(grid: Grid) -> list[str]:
    """What a reader would not see in the figures: files that disagree about what they are."""
    gathered, cautions = grid.gathered, []
    weights: dict[str, set[str]] = {}
    for _, _, result in grid.distinct:
        weights.setdefault(result.spec.backbone, set()).add(result.weight_hash)
    for backbone, hashes in weights.items():
        if len(hashes) > 1:
            cautions.append(f"The results of {backbone} come from {len(hashes)} different sets of weights.")
    if gathered.older:
        cautions.append(f"{gathered.older} older results with the same spec as a newer one are left out.")
    if gathered.strange:
        names = ", ".join(gathered.strange[:3]) + (", ..." if len(gathered.strange) > 3 else "")
        cautions.append(
            f"{len(gathered.strange)} JSON files in {gathered.folder} are no result files of this version: {names}."
        )
    if gathered.failures:
        cautions.append(f"{len(gathered.failures)} runs failed; {gathered.folder / FAILED} says why.")
    return cautions
