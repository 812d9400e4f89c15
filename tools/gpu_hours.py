"""How long the suites of the paper would take on one GPU, by a model, and the tables of docs/experiments/gpu-hours.md
that say so.

    python tools/gpu_hours.py            prints the tables
    python tools/gpu_hours.py --write    puts them into docs/experiments/gpu-hours.md, between its marks

A step takes as long as its arithmetic or as the passes that wait for one another, whichever is longer. Its arithmetic
is the number of forwards of the image tower that it was measured to cost on a processor
(benchmarks/results/bench-1.json), times the tower's operations, at a rate that is assumed. What a pass takes at the
least is assumed twice: by the launches that docs/experiments/speed.md counts, and as the paper prints it for the frozen
model. Reading, corrupting and augmenting images is done meanwhile by the processor and is not counted.
"""

from __future__ import annotations

import argparse
import itertools
import json
import re
import statistics
from collections.abc import Iterable
from dataclasses import dataclass
from functools import cache
from pathlib import Path

from ostta.bench.paper.values import find
from ostta.bench.spec import RunSpec
from ostta.bench.suite import expand, load_suite, suite_names
from ostta.data.catalogue import CATALOGUE, CatalogueEntry
from ostta.data.class_names import class_list

ROOT = Path(__file__).resolve().parents[1]
PAGE = ROOT / "docs" / "experiments" / "gpu-hours.md"
MEASURED = ROOT / "benchmarks" / "results"
# The middle one of the rates in docs/experiments/speed.md, in operations a second, and its time of a launch in seconds.
RATE, LAUNCH = 20e12, 6e-6
# Half of the images are known; a quarter each is reliably known and reliably unknown, as in the targets of
# docs/experiments/speed.md.
ACCEPTED = 0.5
VERDICTS = {"unreliable": 0.5, "reliable undesired": 0.25, "reliable desired": 0.25}
# Passes that wait for one another: of ROSITA for each verdict, as in docs/experiments/speed.md; of the others for an
# accepted image.
PASSES_OF_ROSITA = {"unreliable": 1, "reliable undesired": 2, "reliable desired": 5}
PASSES = {
    "zero_shot": 1,
    "tda": 1,
    "dpe": 1,
    "oga": 1,
    "onzeta": 1,
    "prototypes": 3,
    "unient": 3,
    "entropy": 3,
    "tpt": 5,
    "tpt_c": 5,
    "palign": 7,
    "palign_c": 7,
}
TUNES_PROMPTS = ("tpt", "tpt_c", "palign", "palign_c")


@dataclass(frozen=True)
class Tower:
    """The shape of an image tower, and the one among the measured shapes whose ratios stand for it."""

    width: int
    layers: int
    tokens: int
    patch: int
    measured_as: str

    @property
    def operations(self) -> float:
        """Of one forward over one image: a product and a sum are two."""
        dense = 12 * self.width**2 * self.tokens * self.layers
        attention = 2 * self.tokens**2 * self.width * self.layers
        patches = (self.tokens - 1) * 3 * self.patch**2 * self.width
        return 2.0 * (dense + attention + patches)


TOWERS = {
    "openai/clip-vit-base-patch16": Tower(768, 12, 197, 16, "ViT-B/16"),
    "openai/clip-vit-base-patch32": Tower(768, 12, 50, 32, "ViT-B/32"),
    "openai/clip-vit-large-patch14": Tower(1024, 24, 257, 14, "ViT-B/16"),
    "laion/CLIP-ViT-L-14-laion2B-s32B-b82K": Tower(1024, 24, 257, 14, "ViT-B/16"),
}


@cache
def measured() -> dict[tuple[str, str], dict[int, float]]:
    """Forwards of the tower that a step costs: by shape and kind of step, for each number of classes."""
    found: dict[tuple[str, str], dict[int, float]] = {}
    for row in json.loads((MEASURED / "bench-1.json").read_text(encoding="utf-8"))["rows"]:
        found.setdefault((row["shape"], row["what"]), {})[row["classes"]] = statistics.median(row["rounds"])
    return found


def forwards(shape: str, what: str, classes: int) -> float:
    """What was measured, on a straight line between the numbers of classes that were."""
    points = sorted(measured()[shape, what].items())
    if classes <= points[0][0]:
        return points[0][1]
    for (few, less), (many, more) in itertools.pairwise(points):
        if classes <= many:
            return less + (more - less) * (classes - few) / (many - few)
    return points[-1][1]


@cache
def least_times() -> dict[str, float]:
    """Seconds that one pass takes at the least, under both assumptions, for a tower of twelve layers."""
    model = json.loads((MEASURED / "pool.json").read_text(encoding="utf-8"))["model_of_a_gpu"]
    printed = [float(each.value) for each in find(table="app-fig:complexity-analysis", method="zero_shot", metric="ms")]
    return {"launches": model["no updates"]["launches_in_turn"] * LAUNCH, "paper": statistics.mean(printed) / 1000}


def seconds(method: str, backbone: str, classes: int, least: float) -> float:
    """A step, on the average over the verdicts."""
    name, _, prompts = backbone.partition("+maple")
    tower = TOWERS[name]
    least *= tower.layers / 12

    def longer(cost: float, passes: int) -> float:
        return max(cost * tower.operations / RATE, passes * least)

    def cost(what: str) -> float:
        return forwards(tower.measured_as, what, classes)

    if method == "rosita":
        each = {verdict: longer(cost(f"rosita, {verdict}"), PASSES_OF_ROSITA[verdict]) for verdict in VERDICTS}
        return sum(share * each[verdict] for verdict, share in VERDICTS.items())
    if method in TUNES_PROMPTS:
        # TPT on MaPLe passes the selected views with graph, as PAlign does, and was not measured by itself.
        what = (
            f"{'palign_c' if method.endswith('_c') else 'palign'}, MaPLe" if prompts or "palign" in method else method
        )
        accepted = longer(cost(what), PASSES[method])
        return ACCEPTED * accepted + (1 - ACCEPTED) * longer(cost("zero_shot"), 1)
    return longer(cost(method), PASSES[method])


def images(spec: RunSpec) -> int:
    """How long the stream of a run is, by the official numbers."""
    desired = min(next(iter(_entry(spec).splits.values())).expected.official, spec.limit or 10**9)
    visits = len(getattr(spec.scenario, "corruptions", ("one",)))
    return visits * (desired + int(desired * spec.ratio))


def class_count(spec: RunSpec) -> int:
    return len(class_list(_entry(spec).classes).names)


def _entry(spec: RunSpec) -> CatalogueEntry:
    """The desired set; of a corrupted one, the clean set that it is made from."""
    return CATALOGUE[spec.desired if spec.desired in CATALOGUE else spec.desired.removesuffix("c")]


def suite_rows() -> Iterable[tuple[str, ...]]:
    """For every suite of the paper: its labels, command, runs, images, hours under both assumptions, and data."""
    times = least_times()
    suites = [load_suite(name) for name in suite_names() if name.startswith("paper/")]
    for suite in sorted(suites, key=lambda each: (not each.what.startswith("Section 6"), each.what)):
        # Cells with equal specs share a run.
        specs = list({cell.request: cell.spec for cell in expand(suite)}.values())
        shown = sum(map(images, specs))
        hours = [
            sum(images(spec) * seconds(spec.method, spec.backbone, class_count(spec), least) for spec in specs) / 3600
            for least in times.values()
        ]
        sets = sorted({each for spec in specs for each in (spec.desired, spec.undesired) if each})
        section = suite.what.partition(":")[0]
        labels = ", ".join(label for label in suite.labels if not label.startswith("tableDetailed"))
        yield (
            f"{section}: {labels}", f"`ostta bench run {suite.name}`", f"{len(specs)}", f"{shown / 1e6:.2f}",
            *(_hours(each) for each in hours), ", ".join(f"`{each}`" for each in sets),
        )  # fmt: skip


def check_rows() -> Iterable[tuple[str, ...]]:
    """The model beside the times that the paper prints: milliseconds a step on its GPU."""
    tower, least = TOWERS["openai/clip-vit-base-patch16"], least_times()

    def printed(table: str, method: str, desired: str) -> str:
        (value,) = find(table=table, method=method, desired=desired, metric="ms")
        return f"{float(value.value):g}"

    def modelled(pairs: Iterable[tuple[float, float, int]], wait: float) -> str:
        seconds = [share * max(cost * tower.operations / RATE, passes * wait) for share, cost, passes in pairs]
        return f"{1000 * sum(seconds):.0f}"

    plan = [
        (share, forwards("ViT-B/16", f"published plan, {verdict}", 10), 3 if verdict == "unreliable" else 5)
        for verdict, share in VERDICTS.items()
    ]
    tuned = [(1.0, forwards("ViT-B/16", "tpt", 10), PASSES["tpt"])]
    thousand = [(1.0, forwards("ViT-B/16", "published plan of tpt", 1000), PASSES["tpt"])]
    paper, appendix = "fig:complexity-analysis", "app-fig:complexity-analysis"
    for what, pairs, at in (
        ("published plan of ROSITA, 10 classes", plan, printed(paper, "rosita", "cifar10c")),
        ("TPT, an image classified as known, 10 classes", tuned, printed(appendix, "tpt", "cifar10c")),
        ("published plan of TPT, 1,000 classes", thousand, printed(appendix, "tpt", "imagenetc")),
    ):
        yield what, *(modelled(pairs, wait) for wait in least.values()), at


def _hours(value: float) -> str:
    return f"{value:.1f}" if value < 10 else f"{value:.0f}"


def _table(head: tuple[str, ...], rows: Iterable[tuple[str, ...]]) -> str:
    lines = [head, ("---",) * len(head), *rows]
    return "\n".join("| " + " | ".join(line) + " |" for line in lines)


def tables() -> dict[str, str]:
    """Both tables by the mark that they have in the page."""
    floors = [f"{1000 * each:.1f} ms" for each in least_times().values()]
    return {
        "hours": _table(
            (
                "of the paper",
                "command",
                "runs",
                "million images",
                *(f"hours, pass ≥ {each}" for each in floors),
                "data",
            ),
            suite_rows(),
        ),
        "check": _table(("a step", *(f"model, pass ≥ {each}" for each in floors), "printed"), check_rows()),
    }


def put_in(page: str) -> str:
    """The page with both tables between their marks, `<!-- NAME -->` and `<!-- end of NAME -->`."""
    for name, table in tables().items():
        between = re.compile(rf"(<!-- {name} -->\n).*?(<!-- end of {name} -->)", flags=re.DOTALL)
        page, found = between.subn(lambda mark, table=table: f"{mark[1]}\n{table}\n\n{mark[2]}", page)
        if found != 1:
            raise SystemExit(f"{PAGE} has {found} places for the table {name!r}, where one is needed.")
    return page


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--write", action="store_true", help="put the tables into docs/experiments/gpu-hours.md")
    if parser.parse_args().write:
        PAGE.write_text(put_in(PAGE.read_text(encoding="utf-8")), encoding="utf-8")
    else:
        print("\n\n".join(tables().values()))


if __name__ == "__main__":
    main()
