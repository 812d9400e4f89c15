"""The figures of the paper: against its LaTeX, where that is beside the project, and against each other."""

from __future__ import annotations

import math
import re
from collections import Counter, defaultdict

import pytest

from helpers.errors import raises
from helpers.paths import ROOT, SHARED
from ostta.bench.paper.values import PaperValue, find, paper_values
from ostta.bench.result import METRICS
from ostta.methods import METHODS

LATEX = SHARED / "paper" / "rosita.tex.txt"
COUNTS = {"images", "images_desired", "images_undesired"}
DELTAS = {"delta_auroc", "delta_fpr95", "delta_hm"}
NUMBER = re.compile(r"[+-]?\d+(\.\d+)?")

# Tables that have no label of their own, by the macro that holds them.
UNLABELLED = (
    "tableDetailedCifarTenMnistSvhn",
    "tableDetailedCifarTenTinyCifarHundred",
    "tableDetailedCifarHundredMnistSvhn",
    "tableDetailedCifarHundredTinyCifarTen",
    "tableDetailedINCMnistSvhn",
    "tableDetailedINRMnistSvhn",
    "tableDetailedVisdaMnistSvhn",
)
READ_ROW_BY_ROW = (
    "tab:cifar", "tab:IN", "tab:visda-domainnet-HM", "tab:loss_ablation", "app-tab:loss-ablation",
    "tab:open-world-scenarios",
    "tab:reliable-samples", "app-tab:ood-detectors-comparison", "tab-app:random-seeds", "app-tab:ctta",
    "app-tab:open_set_ctta",
    "app-tab:ccc", "app-tab:inr-ratio", "app-tab:large-scale-backbones", "tab:cifar-vitb32", "tab:IN-vitb32",
    "tab:visda-vitb32",
    "app-tab:cifar-impulse", "app-tab:cifar-motion-blur", "app-tab:cifar-jpeg-compression", "app-tab:INC-gaussian",
    "app-tab:parameter-groups", "tab:inter_feature_distance", "app-tab:knn_retrieval", "tab:dataset-details",
    *UNLABELLED,
)  # fmt: skip


@pytest.fixture(scope="module")
def latex() -> str:
    if not LATEX.exists():
        pytest.skip("the LaTeX of the paper (shared/paper) is not beside the project")
    return LATEX.read_text(encoding="utf-8")


def body(latex: str, table: str) -> list[list[str]]:
    """The cells below the first rule of a table, one list a row, with marks of weight and colour taken off."""
    if table in UNLABELLED:
        start = latex.index(f"\\newcommand{{\\{table}}}")
    else:
        # The label may stand before or after the tabular, but inside the same float.
        label = latex.index(f"\\label{{{table}}}")
        start = max(latex.rfind(f"\\begin{{{float}}}", 0, label) for float in ("table", "wraptable"))
    tabular = latex[latex.index("\\begin{tabular}", start) : latex.index("\\end{tabular}", start)]
    rows = []
    for line in tabular[tabular.index("\\midrule") :].split("\\\\"):
        bare = re.sub(r"\\(textbf|bf|color|cmidrule|midrule|bottomrule|pm)\b(\([^)]*\))?", " ", line.replace("{,}", ""))
        rows.append([re.sub(r"\{(red|green|[\d-]+)\}|[{}$]", " ", cell).split() for cell in bare.split("&")])
    return [[" ".join(words) for words in row] for row in rows]


def numbers(latex: str, table: str, *, of_resnet: bool = False) -> list[float]:
    """All figures of a table in reading order: those of ResNet-50, or all others."""
    found, resnet = [], False
    for row in body(latex, table):
        text = " ".join(row)
        resnet = "RN50" in text or (resnet and "ViT" not in text)
        for cell in row if resnet == of_resnet else []:
            words = cell.split()
            if words and all(NUMBER.fullmatch(word) for word in words):
                found.extend(map(float, words))
    return found


@pytest.mark.parametrize("table", READ_ROW_BY_ROW)
def test_every_figure_of_a_table_in_its_order(latex: str, table: str) -> None:
    printed = numbers(latex, table)
    assert len(printed) >= 9
    assert [value.value for value in find(table=table)] == printed


def test_the_page_of_suites_counts_the_figures(latex: str) -> None:
    omitted = sum(len(numbers(latex, table, of_resnet=True)) for table in READ_ROW_BY_ROW)
    page = (ROOT / "docs" / "suites.md").read_text(encoding="utf-8")
    count = len(paper_values())
    doubted = sum(bool(value.doubt) for value in paper_values())
    assert f"{count:,} of the {count + omitted:,} figures" in page
    assert f"{omitted} figures of ResNet-50" in page
    assert f"{doubted} of them a **doubt**" in page


def test_the_tables_that_are_not_read_row_by_row(latex: str) -> None:
    sweep = numbers(latex, "app-tab:hyperparameterK")
    rows = [sweep[start : start + 7] for start in range(0, len(sweep), 7)]
    assert [row[0] for row in rows] == [10, 200, 1000]  # the column |C_d|
    assert [value.value for value in find(table="app-tab:hyperparameterK")] == [v for row in rows for v in row[1:]]
    ranks = numbers(latex, "app-tab:lora-rank")
    by_row = [value.value for metric in ("accuracy", "added_parameters", "adapted_parameters")
              for value in find(table="app-tab:lora-rank", metric=metric)]  # fmt: skip
    assert by_row == ranks
    memory = [row for row in body(latex, "tab:feature-bank-memory") if len(row) == 4]
    for row in memory:
        k, classes, extra = map(int, re.findall(r"\d+", row[2]))
        expected = [float(row[1]), k * classes + extra, float(row[3])]
        start = [value for value in find(table="tab:feature-bank-memory") if value.cell.startswith(row[0].split()[-1])]
        assert [value.value for value in start] == expected


def test_the_curve_of_the_parameter_study(latex: str) -> None:
    points = re.findall(r"FtParamsClosedSet_txt,10000,(\S+?),(\w+), *([\d.]+)", latex)
    frozen = {float(value) for _, group, value in points if group == "zseval"}
    assert frozen == {value.value for value in find(table="fig:param-analysis", method="zero_shot")}
    names = {"ln": "layernorm", "prompts_ln": "prompts+layernorm"}
    for rate, group, value in points:
        if group == "zseval":
            continue
        rank = ";rank=16" if group == "lora" else ""
        setting = f"group={names.get(group, group)};lr={float(rate):g};optimiser=sgd{rank}"
        assert [float(value)] == [v.value for v in find(table="fig:param-analysis", setting=setting)]
    assert len(points) == 40
    assert len(find(table="fig:param-analysis")) == 36


def test_the_bars_of_the_complexity_figures(latex: str) -> None:
    for name, table, metric, factor in (
        ("mydata", "fig:complexity-analysis", "gpu_memory_gb", 1),
        ("mapletime", "fig:complexity-analysis", "ms", 1000),
        ("clipgpu", "app-fig:complexity-analysis", "gpu_memory_gb", 1),
        ("cliptime", "app-fig:complexity-analysis", "ms", 1000),
    ):
        before = latex[: latex.index(f"}}\\{name}")]
        words = before[before.rindex("\\pgfplotstableread{") :].split()[5:]
        printed = [float(word) * factor for word in words if NUMBER.fullmatch(word)]
        assert len(printed) == 15
        assert [value.value for value in find(table=table, metric=metric)] == pytest.approx(printed)


def test_the_curves_of_the_prompt_optimiser(latex: str) -> None:
    lines = [line.replace(" ", "").split(",") for line in latex.splitlines() if line.startswith("TPTContinualAnalysis")]
    assert len(lines) == 16
    columns = {"auroc": 3, "fpr95": 4, "accuracy": 5, "acc_desired": 6, "acc_undesired": 7, "hm": 8}
    for number, line in enumerate(lines):
        method = "tpt_c" if number // 4 % 2 == 0 else "palign_c"
        label = f"{'TPT-C' if method == 'tpt_c' else 'PAlign-C'} / {line[1]} / 1e-{round(-math.log10(float(line[2])))}"
        for metric, column in columns.items():
            (value,) = [
                v for v in find(table="fig:tpt-c-opt", method=method, metric=metric) if v.cell.startswith(label)
            ]
            if line[column] == "0989":
                assert value.value == pytest.approx(98.9)
                assert "0989" in value.doubt
            else:
                assert value.value == pytest.approx(float(line[column]) * (1 if metric == "hm" else 100), abs=6e-5)


def cell(**filters: str) -> float:
    (value,) = {found.value for found in find(scenario=filters.pop("scenario", "single"), **filters)}
    return value


def test_figures_known_from_elsewhere_stand_in_the_right_cells() -> None:
    """Read off the paper by other eyes (the reference numbers of the specification)."""
    mnist = {"desired": "cifar10c", "undesired": "mnist", "setting": "", "backbone": "clip-vit-b16"}
    for metric, frozen, adapted in (
        ("auroc", 91.91, 99.10), ("fpr95", 85.04, 7.63), ("hm", 75.57, 84.17), ("acc_desired", 60.82, 72.81),
        ("acc_undesired", 99.77, 99.74),
    ):  # fmt: skip
        assert cell(**mnist, method="zero_shot", metric=metric) == frozen
        assert cell(**mnist, method="rosita", metric=metric) == adapted
    for method, expected in {
        "tpt": (91.89, 85.55, 75.81), "tpt_c": (81.64, 67.53, 74.86), "prototypes": (98.05, 12.50, 83.27),
        "unient": (91.98, 85.2, 75.62), "tda": (92.94, 71.11, 77.06), "dpe": (46.97, 99.10, 27.60),
    }.items():  # fmt: skip
        row = tuple(cell(**mnist, table="tab:cifar", method=method, metric=m) for m in ("auroc", "fpr95", "hm"))
        assert row == expected
    losses = {"re": 80.97, "d": 79.71, "u": 79.84, "re,d": 79.24, "re,u": 82.98, "d,u": 80.69}
    for names, hm in losses.items():
        assert cell(**mnist | {"setting": f"losses={names}"}, method="rosita", metric="hm") == hm
    sweep = {"k=1": 83.9, "k=3": 84.32, "k=7": 84.10, "k=9": 84.02}
    for setting, hm in sweep.items():
        assert cell(**mnist | {"setting": setting}, method="rosita", metric="hm") == hm
    per_corruption = {
        "gaussian_noise": 43.35,
        "glass_blur": 43.29,
        "snow": 76.84,
        "elastic": 60.35,
        "jpeg": 60.38,
        "mean": 66.86,
    }
    for corruption, hm in per_corruption.items():
        found = find(**mnist, table="app-tab:ctta", scenario=f"continual/{corruption}", method="rosita")
        assert [value.value for value in found] == [hm]
    maple = {"backbone": "maple-vit-b16", "setting": "", "method": "rosita", "metric": "hm"}
    for desired, undesired, hm in (
        ("cifar10c", "tiny_imagenet20", 77.67),
        ("cifar100c", "mnist", 62.06),
        ("imagenetc", "mnist", 51.30),
    ):
        assert cell(**maple, desired=desired, undesired=undesired) == hm
    assert cell(desired="cifar10c", undesired="cifar100c", method="rosita", metric="wasserstein") == 0.6594
    assert cell(desired="cifar10c", undesired="svhn", method="rosita", metric="hm", setting="seeds=5") == 78.90


def key(value: PaperValue) -> tuple[str, ...]:
    return value.backbone, value.desired, value.undesired, value.scenario, value.method, value.setting, value.metric


def test_no_figure_twice_and_only_known_names() -> None:
    values = paper_values()
    assert len(values) == 3639
    assert not [twice for twice, count in Counter((v.table, v.cell) for v in values).items() if count > 1]
    assert not [twice for twice, count in Counter((v.table, *key(v)) for v in values).items() if count > 1]
    assert {v.method for v in values if v.table != "tab:dataset-details"} <= set(METHODS)
    assert {v.metric for v in values} <= {*METRICS, *COUNTS, *DELTAS}
    assert not [v for v in values if "resnet" in v.backbone.lower() or "RN50" in v.cell]
    percents = ("auroc", "fpr95", "acc_desired", "acc_undesired", "hm", "accuracy")
    assert all(0 <= v.value <= 100 for v in values if v.metric in percents)


def test_harmonic_means_follow_from_their_accuracies_or_are_doubted() -> None:
    rows: dict[tuple[str, ...], dict[str, PaperValue]] = defaultdict(dict)
    for value in paper_values():
        rows[(value.table, *key(value)[:-1])][value.metric] = value
    whole = [row for row in rows.values() if {"acc_desired", "acc_undesired", "hm"} <= set(row)]
    assert len(whole) > 100
    wrong = []
    for row in whole:
        desired, undesired = row["acc_desired"].value, row["acc_undesired"].value
        if abs(2 * desired * undesired / (desired + undesired) - row["hm"].value) > 0.02:
            wrong.append(row["hm"].cell)
            assert all(row[metric].doubt for metric in ("acc_desired", "acc_undesired", "hm"))
    assert wrong == ["MAPLE / PAlign-C / CIFAR-10C/SVHN / HM"]


def test_one_cell_with_two_values_is_doubted_wherever_it_stands() -> None:
    cells = defaultdict(list)
    for value in paper_values():
        cells[key(value)].append(value)
    apart = [found for found in cells.values() if max(v.value for v in found) - min(v.value for v in found) > 0.006]
    assert len(apart) >= 10
    assert not [value for found in apart for value in found if not value.doubt]


def test_printed_gains_and_means_are_what_they_say_or_are_doubted() -> None:
    for gain in find(metric=DELTAS):
        place = {name: getattr(gain, name) for name in ("table", "backbone", "desired", "undesired")}
        metric = gain.metric.removeprefix("delta_")
        frozen, adapted = (cell(**place, method=method, metric=metric) for method in ("zero_shot", "rosita"))
        real = frozen - adapted if metric == "fpr95" else adapted - frozen
        assert ("the two rows differ by" in gain.doubt) == (abs(real - gain.value) > 0.006), gain
    means = find(table="app-tab:ctta", scenario="continual/mean")
    assert len(means) == 32
    for mean in means:
        place = {name: getattr(mean, name) for name in ("table", "backbone", "undesired", "method")}
        parts = [v.value for v in find(**place) if v.scenario != "continual/mean"]
        assert len(parts) == 15
        assert sum(parts) / 15 == pytest.approx(mean.value, abs=0.011)


def test_what_is_known_to_be_wrong_is_doubted() -> None:
    for filters in (
        {"table": "tab:IN-vitb32"},
        {"table": "app-tab:INC-gaussian"},
        {"table": "app-fig:complexity-analysis", "metric": "ms", "method": "rosita"},
        {"table": "tab:open-world-scenarios", "scenario": "continual/mean", "undesired": ("mnist", "svhn")},
        {"table": "tab:feature-bank-memory", "metric": "bank_mb"},
        {"scenario": "frequent/200"},
        {
            "table": "tab:IN",
            "method": "unient",
            "backbone": "maple-vit-b16",
            "desired": "imagenetr",
            "undesired": "svhn",
        },
        {"table": "fig:param-analysis", "setting": "group=lora;lr=0.001;optimiser=sgd;rank=16"},
    ):
        found = find(**filters)
        assert found
        assert all(value.doubt for value in found), filters
    # What nothing speaks against stays without a doubt.
    assert len([value for value in paper_values() if not value.doubt]) > 3000


def test_scores_of_a_method_that_forgets_are_the_frozen_models_or_doubted() -> None:
    for value in find(method=("tpt", "palign"), metric="auroc"):
        place = {name: getattr(value, name) for name in ("table", "backbone", "desired", "undesired", "setting")}
        if abs(value.value - cell(**place, method="zero_shot", metric="auroc")) > 0.2:
            assert value.doubt, value


def test_an_unknown_filter_is_an_error() -> None:
    with raises("filter-unknown", match="cannot be found by 'dataset'"):
        find(dataset="mnist")
