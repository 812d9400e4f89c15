"""Tables and pages of suites, from results written by hand: two methods, two columns, two seeds."""

from __future__ import annotations

import csv
import io
import itertools
import json
import math
import os
import re
import sys
from contextlib import redirect_stderr, redirect_stdout
from dataclasses import replace
from html.parser import HTMLParser
from pathlib import Path

import numpy as np
import pyarrow
import pyarrow.parquet
import pytest

from helpers.errors import raises
from helpers.results import made
from ostta.bench.collected import SuiteResults, collect_results
from ostta.bench.data_export import tidy_rows
from ostta.bench.figures import DELTA, SuiteFigures
from ostta.bench.folder import ResultFolder
from ostta.bench.footnotes import why_no_interval
from ostta.bench.formats import FORMATS
from ostta.bench.paper.values import find
from ostta.bench.records import read_records
from ostta.bench.result import Quantiles, Result, metric_value, number
from ostta.bench.spec import RunSpec, changed
from ostta.bench.suite import Suite, expand, load_suite, read_suite, suite_names
from ostta.bench.tables import TableCell, sheet
from ostta.cli import main
from ostta.evaluation import metrics
from ostta.pages import sections as run_sections
from ostta.pages.charts import domain_charts, option_charts
from ostta.pages.parts import Grid
from ostta.pages.suite import suite_report

SUITE = """
title = "By hand"
what = "Section 6: tab:cifar"
labels = ["tab:cifar"]
remark = "A remark of the suite."
metrics = ["auroc", "fpr95", "hm"]
rows = ["backbone", "method"]
columns = ["stream"]
seeds = [0, 1]

[axes]
method = ["rosita", "zero_shot"]

[axes.backbone]
CLIP = { backbone = "openai/clip-vit-base-patch16" }
MaPLe = { backbone = "openai/clip-vit-base-patch16+maple:maple" }

[axes.stream]
"C-10C/MNIST" = { desired = "cifar10c", undesired = "mnist:train" }
"C-10C/Tiny" = { desired = "cifar10c", undesired = "tiny_imagenet20" }
"""
MNIST, TINY = ("C-10C/MNIST",), ("C-10C/Tiny",)
FROZEN, ROSITA, OTHER_FROZEN = ("CLIP", "zero_shot"), ("CLIP", "rosita"), ("MaPLe", "zero_shot")
# HM of seeds 0 and 1.
HM = {
    (FROZEN, MNIST): (70.0, 72.0),
    (ROSITA, MNIST): (80.0, 84.0),
    (FROZEN, TINY): (79.0, 81.0),
    (ROSITA, TINY): (81.0, 80.0),
    (OTHER_FROZEN, MNIST): (83.0, None),
}


@pytest.fixture(scope="module")
def suite(tmp_path_factory: pytest.TempPathFactory) -> Suite:
    path = tmp_path_factory.mktemp("suite") / "hand.toml"
    path.write_text(SUITE)
    return read_suite(path, "paper/hand")


@pytest.fixture(scope="module")
def folder(suite: Suite, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The results, under names that say nothing; one side of Tiny is not the published one."""
    folder = tmp_path_factory.mktemp("results")
    numbers = itertools.count()
    for cell in expand(suite):
        hm = HM.get((cell.row, cell.column), (None, None))[cell.seed]
        if hm is not None:
            origin = "official" if cell.column == MNIST else "generated"
            made(cell.spec, hm, origin=origin).write(folder / f"{next(numbers)}.json")
    return folder


@pytest.fixture(scope="module")
def figures(suite: Suite, folder: Path) -> SuiteFigures:
    return SuiteFigures(collect_results(suite, folder))


def test_means_spreads_and_the_frozen_row_first(figures: SuiteFigures) -> None:
    assert figures.rows == [FROZEN, ROSITA, OTHER_FROZEN, ("MaPLe", "rosita")]
    frozen, rosita = (figures.figure(row, MNIST, "hm") for row in (FROZEN, ROSITA))
    assert (frozen.mean, frozen.seeds) == (71.0, 2)
    assert frozen.std == pytest.approx(math.sqrt(2))  # deviations of 1 and -1, divided by n - 1
    assert (rosita.mean, rosita.std) == (82.0, pytest.approx(math.sqrt(8)))
    single = figures.figure(OTHER_FROZEN, MNIST, "hm")
    assert (single.mean, single.std, single.seeds) == (83.0, None, 1)
    absent = figures.figure(OTHER_FROZEN, TINY, "hm")
    assert (absent.mean, absent.std, absent.seeds, absent.best) == (None, None, 0, False)


def test_deltas_are_taken_seed_by_seed(figures: SuiteFigures) -> None:
    delta = figures.figure(ROSITA, MNIST, DELTA)
    # 80 - 70 and 84 - 72: their spread is smaller than that of rosita alone.
    assert (delta.mean, delta.std) == (11.0, pytest.approx(math.sqrt(2)))
    assert figures.figure(FROZEN, MNIST, DELTA).mean is None
    assert figures.figure(("MaPLe", "rosita"), MNIST, DELTA).mean is None
    # 81 - 79 and 80 - 81.
    assert figures.figure(ROSITA, TINY, DELTA).mean == pytest.approx(0.5)


def test_nothing_is_bold_where_no_interval_can_be_had(figures: SuiteFigures) -> None:
    """These runs kept no records, and their seeds order the same images.

    11 points apart says nothing about other images.
    """
    assert not any(figures.figure(*place, metric).best for place in HM for metric in ("hm", "auroc", "fpr95"))
    assert "There is no interval for any difference: 5 of 5" not in FORMATS["md"](figures)
    assert re.search(
        r"There is no interval for any difference: (\d+) of \1 runs kept no records, "
        r"and seeds that reorder the same images",
        FORMATS["md"](figures),
    )


DRAWN = SUITE.replace("seeds = [0, 1]", "seeds = [0, 1, 2]\nlimit = 40").replace(
    "[axes]", '[base]\ndraw = "images"\n\n[axes]'
)


def drawn_by_seed(
    folder: Path, figure: str, better: tuple[float, ...], streams: tuple[tuple[str], ...] = (MNIST,)
) -> SuiteFigures:
    """CLIP on MNIST, three seeds that draw images: the frozen row has 40, 60 and 50, rosita so much more."""
    (folder / "drawn.toml").write_text(DRAWN)
    suite = read_suite(folder / "drawn.toml", "paper/drawn")
    only = {"backbone": ["CLIP"], "stream": [name for (name,) in streams]}
    for place, cell in enumerate(expand(suite, only=only)):
        value = (40.0, 60.0, 50.0)[cell.seed] + (better[cell.seed] if cell.row == ROSITA else 0.0)
        numbers = made(cell.spec, 50.0).metrics.model_dump() | {figure: value}
        made(cell.spec, 50.0, metrics=numbers).write(folder / f"{place}.json")
    return SuiteFigures(collect_results(suite, folder, only=only))


def test_bold_goes_by_pairs_and_not_by_the_spread_of_each(tmp_path: Path) -> None:
    figures = drawn_by_seed(tmp_path, "hm", (1.4, 1.6, 1.8))
    frozen, rosita = (figures.figure(row, MNIST, "hm") for row in (FROZEN, ROSITA))
    # Ten points from seed to seed, and 1.6 between the rows, which every seed agrees on: t = 1.6 / (0.2 / sqrt(3)) =
    # 13.9.
    assert (frozen.std, rosita.mean - frozen.mean) == (10.0, pytest.approx(1.6))
    assert (frozen.best, rosita.best) == (False, True)
    delta = figures.figure(ROSITA, MNIST, DELTA)
    assert (delta.over, delta.marked) == ("seeds", True)
    # 4.303 standard errors to each side, by Student's t with two degrees of freedom.
    assert delta.high - delta.mean == pytest.approx(4.30265 * 0.2 / math.sqrt(3), rel=1e-4)


def test_the_best_of_rows_that_are_not_told_apart_is_not_bold(tmp_path: Path) -> None:
    figures = drawn_by_seed(tmp_path, "hm", (9.0, -5.0, 1.0))
    assert figures.figure(ROSITA, MNIST, DELTA).mean > 0
    assert not any(figures.figure(row, MNIST, "hm").best for row in (FROZEN, ROSITA))
    assert not figures.figure(ROSITA, MNIST, DELTA).marked


def test_bold_and_stars_are_one_family_of_comparisons(tmp_path: Path) -> None:
    """p = 0.029 on each stream: enough for one comparison, and not for one of two."""
    for streams, significant in (((MNIST,), True), ((MNIST, TINY), False)):
        folder = tmp_path / str(len(streams))
        folder.mkdir()
        figures = drawn_by_seed(folder, "hm", (7.0, 10.0, 13.0), streams)
        for column in streams:
            assert figures.figure(ROSITA, column, "hm").best is significant
            assert figures.figure(ROSITA, column, DELTA).marked is significant
    assert "The correction covers all comparisons of one metric" in FORMATS["md"](figures)


def test_a_rate_that_is_the_backbones_own_is_said(figures: SuiteFigures) -> None:
    said = (
        "Options with a default of the backbone instead of the published value: "
        "lr = 0.001 on openai/clip-vit-base-patch16 (rosita"
    )
    assert said in FORMATS["md"](figures)


def test_lower_is_better_for_fpr95(tmp_path: Path) -> None:
    figures = drawn_by_seed(tmp_path, "fpr95", (1.4, 1.6, 1.8))
    assert [figures.figure(row, MNIST, "fpr95").best for row in (FROZEN, ROSITA)] == [True, False]


def test_gaps_only_where_the_two_can_be_compared(figures: SuiteFigures) -> None:
    printed = {
        row[1]: find(
            table="tab:cifar",
            backbone="clip-vit-b16",
            desired="cifar10c",
            undesired="mnist",
            method=row[1],
            metric="hm",
        )
        for row in (FROZEN, ROSITA)
    }
    assert [value.value for values in printed.values() for value in values] == [75.57, 84.17]
    rosita = figures.figure(ROSITA, MNIST, "hm")
    assert (rosita.paper, rosita.gap, rosita.not_comparable) == (84.17, pytest.approx(-2.17), "")
    delta = figures.figure(ROSITA, MNIST, DELTA)
    assert (delta.paper, delta.gap) == (pytest.approx(8.60), pytest.approx(2.40))
    # Made here, not the published images.
    tiny = figures.figure(ROSITA, TINY, "hm")
    assert (tiny.paper, tiny.gap, tiny.not_comparable) == (80.06, None, "not the published images")
    # A doubtful figure is shown, but nothing is subtracted from it.
    doubtful = figures.figure(OTHER_FROZEN, MNIST, "hm")
    assert (doubtful.paper, doubtful.gap, doubtful.not_comparable) == (83.63, None, "a doubtful figure")
    assert doubtful.doubt
    # Nothing of ours, so nothing to compare.
    assert figures.figure(("MaPLe", "rosita"), MNIST, "hm").gap is None


def test_a_shortened_stream_another_backbone_and_another_convention_have_no_gap(suite: Suite, tmp_path: Path) -> None:
    for cell in expand(suite, limit=30, seeds=[0]):
        made(cell.spec, 60.0).write(tmp_path / f"{cell.row}-{cell.column}".replace("/", "_"))
    for path in tmp_path.iterdir():
        path.rename(path.with_suffix(".json"))
    short = SuiteFigures(collect_results(suite, tmp_path, seeds=[0], limit=30))
    assert short.figure(ROSITA, MNIST, "hm").not_comparable == "fewer images"
    strict = SuiteFigures(collect_results(suite, tmp_path, seeds=[0], limit=30), "strict")
    assert strict.figure(ROSITA, MNIST, "fpr95").not_comparable == "another convention of FPR95"
    assert (short.figure(ROSITA, MNIST, "fpr95").mean, strict.figure(ROSITA, MNIST, "fpr95").mean) == (20.0, 22.0)
    assert (
        SuiteFigures(collect_results(suite, tmp_path, seeds=[0], limit=30), "undesired")
        .figure(ROSITA, MNIST, "fpr95")
        .mean
        is None
    )
    embedded = load_suite("embedded/table-cifar")
    (cell,) = expand(embedded, only={"backbone": ["CLIP"], "method": ["rosita"], "stream": ["C-10C/MNIST"]})
    made(cell.spec, 60.0).write(tmp_path / "embedded.json")
    beside = SuiteFigures(collect_results(embedded, tmp_path)).figure(cell.row, cell.column, "hm")
    assert (beside.paper, beside.gap, beside.not_comparable) == (84.17, None, "another backbone")


def test_what_is_missing_is_one_sentence_with_its_command(figures: SuiteFigures, suite: Suite, folder: Path) -> None:
    # Two backbones, two methods, two streams, two seeds; eight of CLIP and one of MaPLe are there.
    assert figures.collected.missing == (
        f"7 of 16 cells have no result in {folder} and are shown as –; `ostta bench run paper/hand --out "
        f"{folder}` makes them."
    )
    part = collect_results(
        suite, folder, seeds=[0, 2], only={"method": ["rosita"], "stream": ["C-10C/Tiny", "C-10C/MNIST"]}
    )
    assert part.command.endswith("--seeds 0,2 --only method=rosita --only stream=C-10C/Tiny,C-10C/MNIST")
    assert collect_results(suite, folder, only={"backbone": ["CLIP"]}).missing == ""
    with raises("results-missing"):
        collect_results(suite, folder / "absent")


def test_results_of_another_device_are_found_where_it_is_named(suite: Suite, tmp_path: Path) -> None:
    cell = expand(suite, seeds=[0])[0]
    made(changed(cell.spec, device="cuda"), 80.0).write(tmp_path / "gpu.json")
    assert collect_results(suite, tmp_path).found == 0
    found = collect_results(suite, tmp_path, given={"device": "cuda"})
    assert found.found == 1
    assert found.command.endswith("--device cuda")
    # Which of several GPUs it was makes no other run.
    assert collect_results(suite, tmp_path, given={"device": "cuda:1"}).found == 1


def test_the_newest_of_two_results_counts_and_strange_files_are_named(suite: Suite, tmp_path: Path) -> None:
    cell = expand(suite)[0]
    for name, hm, age in (("b", 10.0, 1_000), ("a", 20.0, 2_000)):
        path = tmp_path / f"{name}.json"
        made(cell.spec, hm, weight_hash=name).write(path)
        os.utime(path, (age, age))
    (tmp_path / "other.json").write_text("{}")
    figures = SuiteFigures(collect_results(suite, tmp_path))
    assert figures.figure(cell.row, cell.column, "hm").mean == 20.0
    said = " ".join(sheet(figures).footnotes)
    assert "newer result are left out: 1." in said
    assert "other.json" in said


def test_which_number_of_a_result_a_metric_is() -> None:
    analyses = {
        "stream_distances": {
            "euclidean": 1.5,
            "cosine": 0.5,
            "wasserstein": 1.25,
            "desired_used": 1,
            "undesired_used": 1,
            "desired_given": 1,
            "undesired_given": 1,
            "seed": 0,
        },
        "bank_distances": None,
        "average_matches": 4.1,
        "reliable": {"pseudo_label": 88.0, "desired": 97.0, "undesired": 99.0},
        "bank_bytes": {"features": 233_472, "scores": 4096},
        "adapted_parameters": 39_936,
    }
    result = made(RunSpec(), 70.0, analyses=analyses)
    expected = {
        "auroc": 90.0, "hm": 70.0, "ms": 12.5, "updates": 41.0, "classes": 10.0, "euclidean": 1.5, "cosine": 0.5,
        "wasserstein": 1.25, "average_matches": 4.1, "reliable_pseudo_label": 88.0, "reliable_undesired": 99.0,
        "bank_mb": 0.233472, "bank_features": 5 * 10 + 64, "adapted_parameters": 39_936, "gpu_memory_gb": None,
        "accuracy": None,
    }  # fmt: skip
    assert {name: metric_value(result, name) for name in expected} == expected
    # With the identifier that rejects nothing, accepted and right means right.
    assert metric_value(made(RunSpec(identifier="all"), None), "accuracy") == 65.4
    lora = made(RunSpec(method="entropy"), None, options={"method": {"group": "lora"}}, analyses=analyses)
    assert metric_value(lora, "added_parameters") == 39_936
    layernorm = made(RunSpec(method="entropy"), None, options={"method": {"group": "layernorm"}}, analyses=analyses)
    assert (metric_value(layernorm, "added_parameters"), metric_value(layernorm, "bank_features")) == (0, None)
    assert metric_value(result, "added_parameters") is None
    assert metric_value(made(RunSpec(), 70.0), "euclidean") is None


def continual(spec: RunSpec, names: tuple[str, ...], values: list[float]) -> Result:
    metrics = {"auroc": 1.0, "fpr95": 2.0, "acc_desired": 3.0, "acc_undesired": 4.0}
    domains = [
        {"name": name, "images": 10, "metrics": metrics | {"hm": value}}
        for name, value in zip(names, values, strict=True)
    ]
    return made(spec, 99.0, domains=domains, hm_mean_domains=sum(values) / len(values))


def test_a_continual_run_shows_the_mean_of_its_domains_and_each_of_them(tmp_path: Path) -> None:
    suite = load_suite("embedded/ctta")
    only = {"backbone": ["CLIP"], "method": ["zero_shot", "rosita"], "stream": ["C-10C/MNIST"]}
    for number_, cell in enumerate(expand(suite, only=only)):
        values = [50.0 + place + 10 * number_ for place in range(15)]
        continual(cell.spec, suite.parts, values).write(tmp_path / f"{number_}.json")
    figures = SuiteFigures(collect_results(suite, tmp_path, only=only))
    row, column = ("CLIP", "rosita"), ("C-10C/MNIST",)
    assert figures.figure(row, column, "hm").mean == 67.0
    assert figures.figure(row, column, "hm", "snow").mean == 60.0 + suite.parts.index("snow")
    assert figures.figure(row, column, DELTA).mean == pytest.approx(10.0)
    # The paper's, domain by domain.
    assert figures.figure(("CLIP", "zero_shot"), column, "hm", "gaussian_noise").paper == 43.21
    assert "mean HM of its domains" in " ".join(sheet(figures).footnotes)
    (order, key, picture) = domain_charts(figures)
    assert "1 gaussian_noise, 2 shot_noise" in order.text
    assert picture.title == "HM of each domain, CLIP, C-10C/MNIST"
    assert picture.svg.count('class="line') == 2
    assert [words for _, words in key.words] == ["zero_shot", "rosita"]
    lines = list(csv.DictReader(io.StringIO(FORMATS["figures"](figures))))
    (snow,) = [line for line in lines if (line["backbone"], line["method"], line["part"]) == ("CLIP", "rosita", "snow")]
    assert snow["stream"] == "C-10C/MNIST"
    assert float(snow["mean"]) == 67.0


def test_standard_deviation_as_a_metric(tmp_path: Path) -> None:
    suite = load_suite("embedded/seeds")
    only = {"method": ["rosita"], "stream": ["C-10C/MNIST"]}
    for cell in expand(suite, only=only):
        made(cell.spec, 80.0 + cell.seed).write(tmp_path / f"{cell.seed}.json")
    figure = SuiteFigures(collect_results(suite, tmp_path, only=only)).figure(("rosita",), MNIST, "hm_std")
    # 80 to 84: squared deviations 4 + 1 + 0 + 1 + 4, divided by 4.
    assert (figure.mean, figure.std, figure.seeds, figure.paper) == (pytest.approx(math.sqrt(2.5)), None, 5, 0.023)


def test_a_difference_has_the_digits_of_what_it_is_of(tmp_path: Path) -> None:
    suite = load_suite("embedded/distances")
    only = {"stream": ["C-10C/MNIST"]}
    for place, cell in enumerate(expand(suite, only=only)):
        apart = {
            "euclidean": 1.3 + 0.0027 * place,
            "cosine": 0.5,
            "wasserstein": 1.2,
            "desired_used": 1,
            "undesired_used": 1,
            "desired_given": 1,
            "undesired_given": 1,
            "seed": 0,
        }
        analyses = {
            "stream_distances": apart, "bank_distances": None, "average_matches": None, "adapted_parameters": None,
            "reliable": {"pseudo_label": None, "desired": None, "undesired": None},
            "bank_bytes": {"features": 0, "scores": 0},
        }  # fmt: skip
        made(cell.spec, 50.0, analyses=analyses).write(tmp_path / f"{place}.json")
    text = FORMATS["md"](SuiteFigures(collect_results(suite, tmp_path, only=only)))
    assert tables_of(text)[0][3][2:] == ["1.3027", "0.5000", "1.2000", "+0.0027"]


@pytest.mark.parametrize(
    ("value", "metric", "signed", "text"),
    [
        (None, "hm", False, "–"),
        (84.166, "hm", False, "84.17"),
        (-0.5, "hm", True, "-0.50"),
        (1234.0, "updates", False, "1,234"),
        (22.5, "updates", False, "22.5"),
        (12.34, "ms", False, "12.3"),
        (0.23347, "bank_mb", False, "0.233"),
    ],
)
def test_numbers_as_tables_print_them(value: float | None, metric: str, signed: bool, text: str) -> None:
    assert number(value, metric, signed=signed) == text


def tables_of(markdown: str) -> list[list[list[str]]]:
    """The cells of every Markdown table, its rule left out."""
    blocks = re.findall(r"(?:^\|.*\|\n)+", markdown, flags=re.MULTILINE)
    return [[[cell.strip() for cell in line.strip("|").split("|")] for line in block.splitlines()] for block in blocks]


def test_markdown_parses_back(figures: SuiteFigures) -> None:
    text = FORMATS["md"](figures)
    tables = tables_of(text)
    assert all(len(line) == len(table[0]) for table in tables for line in table)
    first = tables[0]
    assert first[0] == ["backbone", "method", "AUROC ↑", "FPR95 ↓", "HM ↑", "Δ HM"]
    assert set(first[1][0]) == {"-"}
    assert first[1][2].endswith(":")
    rows = {(line[0], line[1]): line[2:] for line in first[2:]}
    assert list(rows) == figures.rows
    assert rows[FROZEN] == ["90.00 ± 0.00", "20.00 ± 0.00", "71.00 ± 1.41", "–"]
    assert rows[ROSITA][2:] == ["82.00 ± 2.83", "+11.00 ± 1.41"]
    assert rows[OTHER_FROZEN][2:] == ["83.00", "–"]
    assert rows["MaPLe", "rosita"] == ["–"] * 4
    printed = next(table for table in tables if any("84.17" in cell for line in table for cell in line))
    beside = {(line[0], line[1]): line[2:] for line in printed[2:]}
    assert beside[ROSITA] == ["99.10 (-9.10)", "7.63 (+12.37)", "84.17 (-2.17)", "+8.60 (+2.40)"]
    assert beside[OTHER_FROZEN][2] == "83.63 [2] (–)"
    assert re.search(r"^\[2\] zero_shot keeps nothing", text, flags=re.MULTILINE)
    cost = tables[-1]
    assert cost[3][2:] == ["41 ± 0", "12.5 ± 0.0", "41 ± 0", "12.5 ± 0.0"]
    for sentence in (figures.collected.missing, "A remark of the suite.", "There is no interval for"):
        assert sentence in text
    assert "not the published images (7); a doubtful figure (3)" in text


def test_csv_has_every_figure_unrounded(figures: SuiteFigures) -> None:
    lines = list(csv.DictReader(io.StringIO(FORMATS["figures"](figures))))
    assert list(lines[0]) == [
        "suite", "backbone", "method", "stream", "part", "group", "metric", "mean", "std", "seeds", "low", "high",
        "over", "images",
        "marked", "best", "paper", "gap", "doubt",
    ]  # fmt: skip
    # Four rows, two columns; three metrics, the difference, updates and time.
    assert len(lines) == 4 * 2 * 6
    found = {(line["backbone"], line["method"], line["stream"], line["metric"]): line for line in lines}
    assert len(found) == len(lines)
    rosita = found["CLIP", "rosita", "C-10C/MNIST", "hm"]
    assert (float(rosita["mean"]), float(rosita["std"]), rosita["seeds"]) == (82.0, math.sqrt(8), "2")
    assert (float(rosita["paper"]), float(rosita["gap"])) == (84.17, 82.0 - 84.17)
    assert found["CLIP", "rosita", "C-10C/MNIST", "delta_hm"]["mean"] == "11.0"
    assert found["CLIP", "rosita", "C-10C/Tiny", "hm"]["gap"] == ""
    assert found["MaPLe", "rosita", "C-10C/Tiny", "hm"]["mean"] == ""
    assert found["MaPLe", "zero_shot", "C-10C/MNIST", "hm"]["doubt"]


def test_csv_of_a_suite_has_one_row_a_run_and_seed(figures: SuiteFigures) -> None:
    lines = list(csv.DictReader(io.StringIO(FORMATS["csv"](figures))))
    assert len(lines) == sum(value is not None for values in HM.values() for value in values)
    found = {(line["in_backbone"], line["method"], line["in_stream"], line["seed"]): line for line in lines}
    assert len(found) == len(lines)
    assert found["CLIP", "rosita", "C-10C/MNIST", "1"]["hm"] == "84.0"
    assert found["CLIP", "rosita", "C-10C/MNIST", "1"]["backbone"] == "openai/clip-vit-base-patch16"


def test_latex_is_whole_and_escaped(figures: SuiteFigures) -> None:
    text = FORMATS["latex"](figures)
    for name in ("table", "tabular"):
        assert text.count(f"\\begin{{{name}}}") == text.count(f"\\end{{{name}}}") > 0
    for rule in ("toprule", "midrule", "bottomrule"):
        assert text.count(f"\\{rule}") == text.count("\\begin{tabular}")
    # What is special to LaTeX stands behind a backslash, but for the & between cells and the comment on the first line.
    comment, _, body = text.partition("\n")
    assert "booktabs" in comment
    outside_rules = re.sub(r"\\cmidrule\(lr\)\{[\d-]+\}", "", body)
    assert not re.search(r"(?<!\\)[%#_]", outside_rules)
    assert not re.search(r"[↑↓±Δ–]", text)
    depth = 0
    for character in re.sub(r"\\[{}]", "", text):
        depth += {"{": 1, "}": -1}.get(character, 0)
        assert depth >= 0
    assert depth == 0
    for tabular in re.findall(r"\\begin\{tabular\}\{(l+r+)\}(.*?)\\end\{tabular\}", text, flags=re.DOTALL):
        columns, lines = tabular[0], [line for line in tabular[1].splitlines() if line.endswith(r"\\")]
        for line in lines:
            spanned = sum(int(span) - 1 for span in re.findall(r"\\multicolumn\{(\d+)\}", line))
            assert len(re.split(r"(?<!\\)&", line)) + spanned == len(columns)
    assert r"82.00 $\pm$ 2.83" in text
    assert r"83.63$^{2}$ (--)" in text
    assert r"zero\_shot" in text


@pytest.mark.parametrize("name", suite_names())
def test_every_suite_has_its_tables(name: str, tmp_path: Path) -> None:
    """One result is enough for all three formats, for every metric and layout there is."""
    suite = load_suite(name)
    cell = expand(suite)[0]
    made(cell.spec, 55.5).write(tmp_path / "one.json")
    figures = SuiteFigures(collect_results(suite, tmp_path))
    assert all(
        len(texts) == sum(len(h) for _, h in block.groups) for block in sheet(figures).blocks for _, texts in block.rows
    )
    markdown = FORMATS["md"](figures)
    assert all(len(line) == len(table[0]) for table in tables_of(markdown) for line in table)
    assert FORMATS["latex"](figures).count("\\begin{tabular}") == len(sheet(figures).blocks)
    assert FORMATS["csv"](figures).count("\n") > 1


@pytest.mark.parametrize(
    ("name", "labels"),
    [
        ("embedded/k", {"HM against K, C-10C/MNIST", "HM against K, C-100C/MNIST"}),
        ("embedded/lora-rank", {"accuracy against LoRA"}),
        ("embedded/ratio", {"HM against ratio"}),
        ("embedded/scenarios", {"HM against (b) N a corruption", "HM against (c) ratio"}),
        (
            "embedded/parameters",
            {f"accuracy against lr, {d}, {o}" for d in ("CIFAR-10C", "CIFAR-100C") for o in ("SGD", "AdamW")},
        ),
        ("embedded/table-cifar", set()),
        ("embedded/identifiers", set()),
    ],
)
def test_options_that_a_suite_varies_are_drawn(name: str, labels: set[str], tmp_path: Path) -> None:
    suite = load_suite(name)
    for place, cell in enumerate(expand(suite)):
        if cell.spec.scenario.kind == "continual":
            continual(cell.spec, ("fog",), [50.0]).write(tmp_path / f"{place}.json")
        else:
            made(cell.spec, 50.0).write(tmp_path / f"{place}.json")
    parts = list(option_charts(SuiteFigures(collect_results(suite, tmp_path))))
    assert {picture.title for part in parts if isinstance(part, Grid) for picture in part.parts} == labels


class Page(HTMLParser):
    """What a browser would fetch or run, and the text of the table cells."""

    def __init__(self, text: str) -> None:
        super().__init__()
        self.outside: list[str] = []
        self.tags: list[str] = []
        self.cells: list[str] = []
        self._inside = False
        self.feed(text)

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.tags.append(tag)
        self._inside = tag == "td" or (self._inside and tag in ("b", "sup", "small"))
        if tag == "td":
            self.cells.append("")
        for name, value in attrs:
            if name in ("src", "href", "srcset", "action", "data") and not (value or "").startswith("#s"):
                self.outside.append(f"{name}={value}")
            if name.startswith("on"):
                self.outside.append(name)

    def handle_endtag(self, tag: str) -> None:
        self._inside = self._inside and tag != "td"

    def handle_data(self, data: str) -> None:
        if self._inside:
            self.cells[-1] += data


def test_the_page_has_every_figure_of_the_tables_once(figures: SuiteFigures) -> None:
    page = Page(suite_report(figures))
    cells, of_page = (
        [cell for block in made.blocks for _, line in block.rows for cell in line]
        for made in (sheet(figures), sheet(figures, page=True))
    )
    # The marks of footnotes are numbered in the order of the page.
    assert sorted(page.cells) == sorted(map(_shown, of_page))
    assert sorted(_shown(replace(cell, mark=0)) for cell in of_page) == sorted(
        _shown(replace(cell, mark=0)) for cell in cells
    )
    assert page.cells.count("82.00 ± 2.83") == 1
    assert page.cells.count("84.17 (-2.17)") == 1
    text = suite_report(figures)
    # The runs of each place, their options inside, and the paper's figures on the stream that cannot be compared.
    assert text.count("<details>") == 5 + 1
    assert text.index("84.17") < text.index("<details>") < text.index("80.06")
    assert "0.001 (backbone)" in text
    assert "made here, seeds 0, 1; not the official files." in text
    assert "7 of 16 cells have no result" in text


def _shown(cell: TableCell) -> str:
    """Return a cell as a page shows it: without a gap that does not exist."""
    small = "" if cell.of_paper and cell.gap is None else cell.details
    return f"{cell.figure}{'*' * cell.star}{cell.mark or ''}{' ' * bool(small)}{small}"


HOSTILE = "<script>alert(1)</script> & \"'"


def test_the_page_escapes_what_others_wrote_and_fetches_nothing(tmp_path: Path) -> None:
    path = tmp_path / "hostile.toml"
    path.write_text(
        SUITE.replace('"By hand"', json.dumps(HOSTILE))
        .replace('"A remark of the suite."', json.dumps(HOSTILE + " https://elsewhere.example/x.js"))
        .replace('"C-10C/Tiny"', json.dumps(HOSTILE))
    )
    suite = read_suite(path, "paper/hostile")
    results = tmp_path / "results"
    (results / "failed").mkdir(parents=True)
    for place, cell in enumerate(expand(suite)[:6]):
        options = {"method": {"k": HOSTILE}}
        made(cell.spec, 50.0, remarks=[HOSTILE], hardware=HOSTILE, options=options).write(results / f"{place}.json")
    failed = expand(suite)[-1].spec.model_dump(mode="json")
    (results / "failed" / "x.json").write_text(json.dumps({"spec": failed, "reason": HOSTILE}))
    text = suite_report(SuiteFigures(collect_results(suite, results)))
    page = Page(text)
    assert page.tags.count("script") == 1  # the page's own
    assert "<script>alert" not in text
    assert page.outside == []
    assert not re.search(r"@import|url\(", text)
    assert text.count("&lt;script&gt;") >= 5
    # The same in LaTeX and Markdown, as far as they can be hurt.
    figures = SuiteFigures(collect_results(suite, results))
    assert r"\& " in FORMATS["latex"](figures)
    assert "<script>" not in FORMATS["md"](figures)


def test_failed_runs_are_listed_unless_they_have_a_result_since(suite: Suite, tmp_path: Path) -> None:
    (tmp_path / "failed").mkdir()
    cells = expand(suite)
    made(cells[0].spec, 50.0).write(tmp_path / "a.json")
    for name, cell in (("old", cells[0]), ("new", cells[5])):
        note = {"spec": cell.spec.model_dump(mode="json"), "reason": f"The {name} reason.", "state": "failed"}
        (tmp_path / "failed" / f"{name}.json").write_text(json.dumps(note))
    (tmp_path / "failed" / "broken.json").write_text("[1]")
    page = suite_report(SuiteFigures(collect_results(suite, tmp_path)))
    assert "The new reason." in page
    assert "The old reason." not in page
    assert "broken.json: This note of a failed run cannot be read." in page


def test_one_bad_file_never_ends_a_table(suite: Suite, tmp_path: Path) -> None:
    """Links to nowhere, folders, pipes, deep nesting and names that are no text: each is named as no result."""
    cell = expand(suite)[0]
    good = made(cell.spec, 50.0)
    good.write(tmp_path / "good.json")
    elsewhere = good.model_dump(mode="json") | {"records": "/etc/records.parquet"}
    (tmp_path / "elsewhere.json").write_text(json.dumps(elsewhere))
    (tmp_path / "link.json").symlink_to(tmp_path / "nowhere")
    (tmp_path / "folder.json").mkdir()
    os.mkfifo(tmp_path / "pipe.json")
    (tmp_path / "deep.json").write_text("[" * 100_000)
    (tmp_path / os.fsdecode(b"caf\xe9.json")).write_text("{}")
    failed = tmp_path / "failed"
    failed.mkdir()
    os.mkfifo(failed / "pipe.json")
    (failed / "link.json").symlink_to(tmp_path / "nowhere")
    (failed / "deep.json").write_text("[" * 100_000)
    nested = json.dumps({"spec": {"options": {"lr": "HERE"}}, "reason": "none"})
    for depth in (300, 900):
        (failed / f"deep{depth}.json").write_text(nested.replace('"HERE"', "[" * depth + "]" * depth))
    collected = collect_results(suite, tmp_path)
    assert collected.found == 1
    strange = ["caf\ufffd.json", "deep.json", "elsewhere.json", "folder.json", "link.json", "pipe.json"]
    assert sorted(collected.unreadable) == strange
    unreadable = [failure.run for failure in collected.failures if "cannot be read" in failure.reason]
    assert {"pipe.json", "link.json", "deep.json"} <= set(unreadable)
    figures = SuiteFigures(collected)
    suite_report(figures).encode()
    for write in FORMATS.values():
        write(figures).encode()


def test_no_cell_of_the_csv_is_a_formula(tmp_path: Path) -> None:
    names = ["=1+1", "+cmd", "-2+3", "@sum", "-1.5", "+2e-3", "-.5", "--", "plain", "a=b"]
    text = SUITE.replace('method = ["rosita", "zero_shot"]', "").replace(
        'rows = ["backbone", "method"]', 'rows = ["kind"]'
    )
    text = text.replace("[axes.backbone]", "[axes.kind]").split("CLIP =")[0]
    text += "".join(f'"{name}" = {{ options.k = {number + 2} }}\n' for number, name in enumerate(names))
    text += '[axes.stream]\n"\\tx" = {}\n'
    (tmp_path / "formulas.toml").write_text(text)
    suite = read_suite(tmp_path / "formulas.toml", "=formulas")
    for place, cell in enumerate(expand(suite)):
        made(cell.spec, 50.0 + place % 3).write(tmp_path / f"{place}.json")
    lines = list(csv.DictReader(io.StringIO(FORMATS["figures"](SuiteFigures(collect_results(suite, tmp_path))))))
    written = list(dict.fromkeys(line["kind"] for line in lines))
    assert written == ["'=1+1", "'+cmd", "'-2+3", "'@sum", "-1.5", "+2e-3", "-.5", "'--", "plain", "a=b"]
    assert {(line["suite"], line["stream"]) for line in lines} == {("'=formulas", "'\tx")}
    assert all(float(line["mean"]) for line in lines if line["metric"] == "hm")


def test_a_suite_whose_skips_leave_nothing_says_so(tmp_path: Path) -> None:
    text = f'{SUITE}\n[[skip]]\nwhere = {{ method = ["rosita", "zero_shot"] }}\nreason = "all"\n'
    (tmp_path / "none.toml").write_text(text)
    assert "has no cells" in collect_results(read_suite(tmp_path / "none.toml", "none"), tmp_path).missing


def test_a_page_without_results_is_one_sentence(suite: Suite, tmp_path: Path) -> None:
    page = suite_report(SuiteFigures(collect_results(suite, tmp_path)))
    body = re.sub(r"<(style|script)>.*?</\1>", "", page, flags=re.DOTALL)
    said = " ".join(re.sub(r"<[^>]+>", " ", body).split())
    assert said == (
        "By hand ostta bench report: suite paper/hand; in the paper: Section 6: tab:cifar By hand "
        f"None of the 16 cells of paper/hand has a result in {tmp_path}; ostta bench run paper/hand --out "
        f"{tmp_path} makes them."
    )


def write_trace(path: Path, images: int, seed: int = 0) -> None:
    rng = np.random.default_rng(seed)
    labels = np.where(rng.random(images) < 0.5, rng.integers(0, 3, images), -1)
    scores = rng.normal(0.3, 0.1, images) + 0.2 * (labels >= 0)
    pyarrow.parquet.write_table(
        pyarrow.table({"label": labels, "score": scores, "threshold": np.full(images, 0.4), "known": scores >= 0.4,
                       "index": rng.integers(0, 3, images)}), path,
    )  # fmt: skip


def with_records(suite: Suite, folder: Path, images: int, only: dict[str, list[str]]) -> SuiteResults:
    for place, cell in enumerate(expand(suite, seeds=[0], only=only)):
        write_trace(folder / f"{place}.parquet", images, place)
        made(cell.spec, 50.0, records=f"{place}.parquet").write(folder / f"{place}.json")
    return collect_results(suite, folder, seeds=[0], only=only)


def test_runs_with_records_are_drawn_three_times_each(suite: Suite, tmp_path: Path) -> None:
    only = {"backbone": ["CLIP"], "stream": ["C-10C/MNIST"]}
    text = suite_report(SuiteFigures(with_records(suite, tmp_path, 200, only)))
    titles = re.findall(r"<figcaption><b>(.*?)</b>", text)
    assert titles[-6:] == [
        f"{method}: {what}"
        for method in ("zero_shot", "rosita")
        for what in ("scores", "scores over time", "accuracies over time")
    ]
    assert text.count('class="chart"') == 6
    (tmp_path / "0.parquet").write_bytes(b"junk")
    (tmp_path / "1.parquet").unlink()
    broken = suite_report(SuiteFigures(collect_results(suite, tmp_path, seeds=[0], only=only)))
    assert broken.count('class="chart"') == 0
    assert broken.count("<li>The records ") == 2


def test_a_page_of_many_long_runs_stays_small(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    shown, most = 2, run_sections.MOST_PICTURED
    monkeypatch.setattr(run_sections, "MOST_PICTURED", shown)
    collected = with_records(load_suite("embedded/loss-ablation"), tmp_path, 20_000, {"stream": ["C-10C/MNIST"]})
    text = suite_report(SuiteFigures(collected))
    assert text.count('class="chart"') == 3 * shown
    assert f"{8 - shown} more runs with records" in text
    assert len(text) * most / shown < 1_500_000


def test_a_trace_gives_the_running_accuracies_by_hand(tmp_path: Path) -> None:
    path = tmp_path / "t.parquet"
    columns = {
        "label": [0, -1, 1, -1], "score": [0.5, 0.1, math.nan, 0.6], "threshold": [math.nan, 0.3, 0.3, 0.3],
        "known": [True, False, False, True], "index": [0, 0, 1, 2],
    }  # fmt: skip
    pyarrow.parquet.write_table(pyarrow.table(columns), path)
    columns = read_records(path)
    curves = columns.cumulative()
    assert curves["Acc_D"].tolist() == [100, 100, 50, 50]
    assert np.isnan(curves["Acc_U"][0])
    assert curves["Acc_U"][1:].tolist() == [100, 100, 50]
    assert curves["HM"][3] == 50
    assert columns.scores[2] == pytest.approx(0.1 - 1)  # a score that is no number counts as the lowest
    assert columns.thinned(2).tolist() == [0, 3]


def ostta(*arguments: str) -> tuple[int, str, str]:
    out, err, code = io.StringIO(), io.StringIO(), 0
    with pytest.MonkeyPatch.context() as patch, redirect_stdout(out), redirect_stderr(err):
        patch.setattr(sys, "argv", ["ostta", *arguments])
        try:
            main()
        except SystemExit as stop:
            code = stop.code if isinstance(stop.code, int) else 0
    return code, out.getvalue(), err.getvalue()


def test_the_two_commands(tmp_path: Path) -> None:
    suite = load_suite("embedded/k")
    code, _, said = ostta("bench", "table", "embedded/k", "--out", str(tmp_path))
    assert (code, "None of the 14 cells" in said) == (1, True)
    for place, cell in enumerate(expand(suite, seeds=[0, 1], limit=20)):
        made(cell.spec, 50.0 + place).write(tmp_path / f"{place}.json")
    code, _, said = ostta("bench", "table", "embedded/k", "--out", str(tmp_path))
    assert (code, "28 of other runs" in said) == (1, True)
    chosen = ["--out", str(tmp_path), "--seeds", "0,1", "--limit", "20", "--only", "stream=C-10C/MNIST"]
    code, text, _ = ostta("bench", "table", "embedded/k", *chosen, "--format", "figures", "--fpr95", "strict")
    assert (code, text.splitlines()[1].split(",")[:3]) == (0, ["embedded/k", "zero_shot", "C-10C/MNIST"])
    code, text, _ = ostta("bench", "report", "embedded/k", *chosen, "--to", str(tmp_path / "page.html"))
    assert (code, text.strip()) == (0, str(tmp_path / "page.html"))
    assert "14 of 14 cells have results" in (tmp_path / "page.html").read_text()
    assert ostta("bench", "report", "embedded/k", *chosen)[1].strip() == str(tmp_path / "embedded-k.html")
    own = tmp_path / "own.toml"
    own.write_text(SUITE)
    assert ostta("bench", "report", str(own), "--out", str(tmp_path))[1].strip() == str(tmp_path / "own.html")
    for arguments, words in (
        (["--seeds", "0,x"], "--seeds takes integers"),
        (["--format", "html"], "There is no format 'html'"),
        (["--fpr95", "strit"], "did you mean 'strict'"),
        (["--only", "stream"], "--only takes"),
    ):
        code, _, said = ostta("bench", "table", "embedded/k", "--out", str(tmp_path), *arguments)
        assert (code, words in said) == (1, True), said


# --- intervals of differences, from records ---------------------------------------------------------------------------
GROUPED = """
title = "Groups"
what = "nowhere"
labels = []
metrics = ["auroc", "hm", "accepted_desired"]
differences = ["hm", "accepted_desired"]
rows = ["method", "identifier"]
columns = ["corruption", "undesired"]
seeds = [0, 1]
limit = 40
records = true

[base]
draw = "images"

[axes.method]
zero_shot = { method = "zero_shot" }
rosita = { method = "rosita" }
tda = { method = "tda" }
"tpt (20)" = { method = "tpt", limit = 20, seeds = [1] }

[axes.identifier]
lda = {}
daf = { identifier = "daf" }

[axes.corruption]
jpeg = { corruption = "jpeg" }
contrast = { corruption = "contrast", group = "unseen" }

[axes.undesired]
MNIST = { undesired = "mnist", group = "far" }
SVHN = { undesired = "svhn", group = "far" }
Tiny = { undesired = "tiny_imagenet20", group = "near" }

[[skip]]
where = { method = ["tda", "tpt (20)"], identifier = ["daf"] }
reason = "as published"
"""
REFERENCE, SAME_BUT_DAF, RIVAL = ("zero_shot", "lda"), ("zero_shot", "daf"), ("rosita", "lda")
# By how many of the 40 unknown images more than the frozen row each row rejects.
BETTER = {REFERENCE: 0, SAME_BUT_DAF: 0, RIVAL: 4, ("rosita", "daf"): 0, ("tda", "lda"): 14}


def write_outcomes(path: Path, cell, more: int) -> dict[str, float | None]:
    """The records of forty images a side, of which the frozen row accepts thirty and rejects ten more.

    And their figures.
    """
    labels = np.r_[np.zeros(40, int), -np.ones(40, int)]
    known = np.r_[np.arange(40) < 30, np.arange(40) >= 10 + more]
    scores = np.r_[np.linspace(0.4, 1, 40), np.linspace(0, 0.6, 40)]
    number = np.r_[np.arange(40), np.arange(40)] + 30 * cell.seed
    source = np.where(labels >= 0, "cifar10c", cell.spec.undesired)
    columns = {
        "label": labels,
        "score": scores,
        "known": known,
        "index": np.zeros(80, int),
        "source": source,
        "number": number,
        "domain": np.zeros(80, int),
        "threshold": scores * 0,
    }
    pyarrow.parquet.write_table(pyarrow.table(columns), path)
    return metrics.summary(labels, scores, known, columns["index"])


@pytest.fixture(scope="module")
def grouped(tmp_path_factory: pytest.TempPathFactory) -> SuiteFigures:
    folder = tmp_path_factory.mktemp("grouped")
    (folder / "grouped.toml").write_text(GROUPED)
    suite = read_suite(folder / "grouped.toml", "embedded/grouped")
    for place, cell in enumerate(expand(suite)):
        if cell.row[0] == "tpt (20)":
            continue
        figures = write_outcomes(folder / f"{place}.parquet", cell, BETTER[cell.row])
        kept = f"{place}.parquet" if cell.row != ("rosita", "daf") else None
        made(cell.spec, 50.0, metrics=figures, records=kept).write(folder / f"{place}.json")
    return SuiteFigures(collect_results(suite, folder))


def test_the_published_frozen_row_is_the_one_that_others_are_measured_against(grouped: SuiteFigures) -> None:
    column = ("jpeg", "MNIST")
    assert grouped.rows[0] == REFERENCE
    assert [row for row in grouped.rows if grouped.is_frozen(row)] == [REFERENCE]
    assert grouped.frozen_row(SAME_BUT_DAF, column) == REFERENCE
    assert grouped.frozen_row(REFERENCE, column) is None
    assert grouped.reference_row("rosita", ("rosita", "daf"), column) == RIVAL
    # A row on fewer images has no frozen row on these.
    assert grouped.frozen_row(("tpt (20)", "lda"), column) is None


def test_differences_have_paired_intervals_where_records_are(grouped: SuiteFigures) -> None:
    column = ("jpeg", "MNIST")
    same = grouped.figure(SAME_BUT_DAF, column, DELTA)
    assert (same.mean, same.low, same.high) == (0.0, 0.0, 0.0)
    rival = grouped.figure(RIVAL, column, "delta_hm")
    assert rival.low <= rival.mean <= rival.high
    tda = grouped.figure(("tda", "lda"), column, "delta_hm_to_rosita")
    assert 0 < tda.low < tda.mean < tda.high
    assert tda.mean == pytest.approx(
        grouped.figure(("tda", "lda"), column, "hm").mean - grouped.figure(RIVAL, column, "hm").mean
    )
    without = grouped.figure(("rosita", "daf"), column, "delta_hm")
    assert (without.mean, without.low) == (0.0, None)


def test_means_over_groups_in_every_format(grouped: SuiteFigures) -> None:
    assert list(grouped.groups) == ["far", "near", "unseen, far", "unseen, near"]
    assert list(grouped.sections) == ["", "unseen"]
    mean = grouped.group_figure(("tda", "lda"), "far", "delta_hm")
    single = grouped.figure(("tda", "lda"), ("jpeg", "MNIST"), "delta_hm")
    assert mean.mean == pytest.approx(single.mean)
    # Two sets of unknown images say more than one.
    assert 0 < mean.high - mean.low < single.high - single.low
    assert grouped.to_better(("tda", "lda"), ("jpeg", "MNIST")) == pytest.approx(
        grouped.figure(("tda", "lda"), ("jpeg", "MNIST"), "delta_hm_to_rosita").mean
    )
    made_sheet = sheet(grouped)
    assert made_sheet.blocks[0].title == ""
    assert {"unseen", "Means over streams", "Updates, and milliseconds a step: unseen"} <= {
        b.title for b in made_sheet.blocks
    }
    means = next(block for block in made_sheet.blocks if block.title == "Means over streams")
    assert means.groups[0] == (
        "far (2)",
        (
            "HM ↑",
            "accepted D ↑",
            "Δ HM",
            "Δ HM to rosita",
            "Δ accepted D",
            "Δ accepted D to rosita",
            "Δ better",
            "lowest",
        ),
    )
    assert ("tpt (20)", "lda") not in dict(means.rows)
    text = FORMATS["md"](grouped)
    assert re.search(r"\| \+\d+\.\d\d \[\+\d+\.\d\d, \+\d+\.\d\d\]\\\* \|", text)
    assert "the paired 95 % interval of a difference over images and seeds, from 1,000 resamples" in text
    lines = list(csv.DictReader(io.StringIO(FORMATS["figures"](grouped))))
    (found,) = [line for line in lines if (line["method"], line["group"], line["metric"]) == ("tda", "far", "delta_hm")]
    assert (float(found["low"]), float(found["high"])) == (mean.low, mean.high)
    assert FORMATS["latex"](grouped).count("\\begin{tabular}") == len(made_sheet.blocks)
    page = Page(suite_report(grouped))
    assert any(re.fullmatch(r"\+\d+\.\d\d\* \[\+\d+\.\d\d, \+\d+\.\d\d\]", cell) for cell in page.cells)


def test_records_of_other_images_give_no_interval(grouped: SuiteFigures, tmp_path: Path) -> None:
    (tmp_path / "grouped.toml").write_text(GROUPED)
    suite = read_suite(tmp_path / "grouped.toml", "embedded/grouped")
    only = {"method": ["zero_shot"], "corruption": ["jpeg"], "undesired": ["MNIST"]}
    for place, cell in enumerate(expand(suite, seeds=[0], only=only)):
        figures = write_outcomes(tmp_path / f"{place}.parquet", cell, 3 * place)
        # The file of the second run is of another seed's images.
        if place:
            write_outcomes(tmp_path / f"{place}.parquet", expand(suite, seeds=[1], only=only)[0], 0)
        made(cell.spec, 50.0, metrics=figures, records=f"{place}.parquet").write(tmp_path / f"{place}.json")
    # Whether the other images are known from other runs, or not at all.
    for place, cell in enumerate(expand(suite, seeds=[1], only=only)[:1]):
        own = write_outcomes(tmp_path / f"more{place}.parquet", cell, 0)
        made(cell.spec, 50.0, metrics=own, records=f"more{place}.parquet").write(tmp_path / f"more{place}.json")
    both = SuiteFigures(collect_results(suite, tmp_path, seeds=[0, 1], only=only))
    assert both.figure(SAME_BUT_DAF, ("jpeg", "MNIST"), DELTA).low is None
    figures = SuiteFigures(collect_results(suite, tmp_path, seeds=[0], only=only))
    delta = figures.figure(SAME_BUT_DAF, ("jpeg", "MNIST"), DELTA)
    assert delta.mean is not None
    assert delta.low is None
    assert (figures.paired.unreadable, figures.paired.different) == ([], ["0.parquet"])
    (tmp_path / "1.parquet").write_bytes(b"junk")
    figures = SuiteFigures(collect_results(suite, tmp_path, seeds=[0], only=only))
    assert (figures.paired.unreadable, figures.paired.different) == (["1.parquet"], [])
    assert why_no_interval(figures) == "1 file of records cannot be read"


def test_times_of_runs_by_cached_features_are_not_shown(tmp_path: Path) -> None:
    suite = load_suite("embedded/k")
    only = {"stream": ["C-10C/MNIST"]}
    for place, cell in enumerate(expand(suite, only=only)):
        made(cell.spec, 50.0, cached_features=cell.spec.method == "zero_shot").write(tmp_path / f"{place}.json")
    figures = SuiteFigures(collect_results(suite, tmp_path, only=only))
    frozen, other = figures.rows[:2]
    assert figures.figure(frozen, MNIST, "ms").mean is None
    assert figures.figure(other, MNIST, "ms").mean == 12.5
    assert "Runs on cached image features have no ms/step" in FORMATS["md"](figures)


def test_streams_with_other_classes_are_told_apart_in_data_and_clean_sets_have_no_corruption(tmp_path: Path) -> None:
    variants = [{}, {"classes": ["cat", "ship"]}, {"classes": ["cat", "dog"]}]
    variants += [{"undesired": "folder:/d/pets", "undesired_classes": names} for names in (["dog"], ["frog"])]
    for place, fields in enumerate(variants):
        made(RunSpec(desired="folder:/d/pets", **{"undesired": "mnist", **fields}), 60.0 + place).write(
            tmp_path / f"{place}.json"
        )
    made(RunSpec(desired="folder:/d/pets", undesired="mnistc", severity=3), 50.0).write(tmp_path / "corrupted.json")
    rows = {row["file"]: row for row in tidy_rows(ResultFolder(tmp_path))}
    assert len({row["stream"] for row in rows.values()}) == 6
    assert [rows[f"{place}.json"]["classes"] for place in range(3)] == [None, '["cat", "ship"]', '["cat", "dog"]']
    assert [rows[f"{place}.json"]["undesired_classes"] for place in (0, 3, 4)] == [None, '["dog"]', '["frog"]']
    assert {(rows[f"{place}.json"]["corruption"], rows[f"{place}.json"]["severity"]) for place in range(5)} == {
        (None, None)
    }
    assert (rows["corrupted.json"]["corruption"], rows["corrupted.json"]["severity"]) == ("snow", 3)
    lines = list(csv.DictReader(io.StringIO(ostta("bench", "table", str(tmp_path), "--format", "csv")[1])))
    assert len({line["stream"] for line in lines}) == 6
    assert {line["corruption"] for line in lines} == {"", "snow"}
    assert sorted(line["classes"] for line in lines)[-1] == '["cat", "ship"]'
    listed = json.loads(ostta("ls", "results", str(tmp_path), "--format", "json")[1])
    assert sum(row["undesired_classes"] is not None for row in listed) == 2


@pytest.fixture(scope="module")
def costs(tmp_path_factory: pytest.TempPathFactory) -> SuiteFigures:
    """Milliseconds of three rows that all kept records: 12.5 of rosita, 222 of tpt."""
    folder, only = tmp_path_factory.mktemp("costs"), {"stream": ["C-10C/MNIST"], "backbone": ["CLIP"]}
    suite = load_suite("embedded/complexity")
    for place, cell in enumerate(expand(suite, only=only)):
        write_trace(folder / f"{place}.parquet", 50, 0)
        result = made(cell.spec, 50.0, records=f"{place}.parquet")
        if cell.spec.method == "tpt":
            slow = result.latency_ms.model_copy(update={"total": Quantiles(p50=222.0, p95=230.0, mean=222.0)})
            result = result.model_copy(update={"latency_ms": slow})
        result.write(folder / f"{place}.json")
    return SuiteFigures(collect_results(suite, folder, only=only))


def test_the_best_row_of_a_page_is_the_lowest_where_lower_is_better(costs: SuiteFigures) -> None:
    ((_, frozen, best),) = run_sections._pairs(run_sections.RunCharts(costs))
    assert (frozen[-1], best[-1]) == ("zero_shot", "rosita")
    (column,) = costs.columns
    # The better of the frozen row and ROSITA, 12.5 each, and 222 of TPT.
    assert costs.to_better(("CLIP", "tpt"), column) == 222.0 - 12.5


def test_the_better_reference_is_the_lower_one_where_lower_is_better(tmp_path: Path) -> None:
    only = {"stream": ["C-10C/MNIST"], "backbone": ["CLIP"]}
    suite = load_suite("embedded/complexity")
    times = {"zero_shot": 10.0, "tpt": 30.0, "rosita": 20.0}
    for cell in expand(suite, only=only):
        result = made(cell.spec, 50.0)
        total = Quantiles(p50=1.0, p95=2.0, mean=times[cell.spec.method])
        result.model_copy(update={"latency_ms": result.latency_ms.model_copy(update={"total": total})}).write(
            tmp_path / f"{cell.spec.method}.json"
        )
    figures = SuiteFigures(collect_results(suite, tmp_path, only=only))
    assert figures.to_better(("CLIP", "tpt"), figures.columns[0]) == 20.0


def test_a_metric_without_intervals_is_not_blamed_on_missing_records(costs: SuiteFigures) -> None:
    page = suite_report(costs)
    assert "kept no records" not in page
    assert page.count("ms/step cannot be resampled over images") == 3
    assert not any("not of the same images" in note for note in sheet(costs).footnotes)


def test_latex_tables_have_captions_and_labels_of_their_own_and_notes_in_a_group(figures: SuiteFigures) -> None:
    text = FORMATS["latex"](figures)
    tables = re.findall(r"\\begin\{table\}.*?\\end\{table\}", text, flags=re.DOTALL)
    labels = re.findall(r"\\label\{(.*?)\}", text)
    assert labels == [f"tab:paper-hand-{place}" for place in range(1, len(tables) + 1)]
    captions = re.findall(r"\\caption\{(.*)\}", text)
    assert len(set(captions)) == len(captions) == len(tables)
    # A switch of the text size ends with its group.
    assert text.count("\\footnotesize") == 1
    group = re.search(r"\\begingroup\n\\footnotesize\n(.*)\n\\endgroup\n$", text, flags=re.DOTALL)
    assert all(line.startswith("\\noindent ") and line.endswith("\\par") for line in group[1].splitlines())


def test_compact_latex_has_the_headline_of_all_streams_in_one_table(figures: SuiteFigures) -> None:
    text = FORMATS["latex-compact"](figures)
    assert text.count("\\begin{table}") == 1
    assert r"\multicolumn{2}{c}{HM $\uparrow$}" in text
    assert r"CLIP & rosita & 82.00 & 80.50 \\" in text
    assert "FPR95" not in text
    assert len(text) < len(FORMATS["latex"](figures)) / 3
