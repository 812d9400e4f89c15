"""The suites: every file loads and expands, and every table and figure of the paper has one."""

from __future__ import annotations

import dataclasses
import io
import json
import re
import sys
from contextlib import redirect_stdout
from pathlib import Path

import pytest
from typer.testing import CliRunner

from helpers.errors import raises
from helpers.paths import ROOT, SHARED
from ostta import Error
from ostta.bench.paper.values import find, paper_values
from ostta.bench.runner import MissingError, missing_for, sets_needed
from ostta.bench.spec import RunSpec, name_of
from ostta.bench.stream import compose
from ostta.bench.suite import Cell, Suite, expand, load_suite, read_suite, runs, suite_names
from ostta.cli import main
from ostta.cli.app import app
from ostta.cli.options import parse_only
from ostta.cli.progress import print_missing
from ostta.config.registry import ALL_IDENTIFIERS as IDENTIFIERS
from ostta.config.registry import ALL_METHODS as METHODS
from ostta.config.resolve import list_options_classes as options_by_owner
from ostta.data.corruptions import corruption_names

LATEX = SHARED / "paper" / "rosita.tex.txt"
NAMES = suite_names()
PAPER = [name for name in NAMES if name.startswith("paper/")]
EMBEDDED = [name for name in NAMES if name.startswith("embedded/")]

# Labels of the paper that no suite is for, and why.
OUT_OF_SCOPE = {
    "tab:dataset-details": "sizes of data sets, not results of runs",
    "fig:main_figure": "a drawing of the method",
}
# Suites in which nothing but ROSITA itself is looked at.
WITHOUT_FROZEN_ROW = {"failure", "memory"}


@pytest.fixture(scope="module")
def suites() -> dict[str, Suite]:
    return {name: load_suite(name) for name in NAMES}


def figures(suite: Suite, cell: Cell) -> list:
    """Everything the paper has for one cell, over metrics and parts."""
    places = [cell.paper, *(cell.paper_part(part) for part in suite.parts)]
    return [value for metric in suite.metrics for place in places for value in find(**place, metric=metric)]


def test_the_named_suites_are_there() -> None:
    expected = {
        "table-imagenet", "table-cifar", "table-visda-domainnet", "loss-ablation", "scenarios", "reliable",
        "identifiers", "k",
        "seeds", "ctta", "ccc", "ratio-imagenet-r", "backbones", "corruption-types", "parameters", "lora-rank",
        "distances",
        "failure", "complexity", "memory", "scores", "prompt-optimiser", "quick",
    }  # fmt: skip
    assert {name.removeprefix("paper/") for name in PAPER} == expected
    scaled = expected - {"table-imagenet", "table-visda-domainnet", "ratio-imagenet-r", "quick"} | {
        "table-cifar100",
        "ratio",
        "beyond",
        "rare",
        "hostile",
    }
    assert {name.removeprefix("embedded/") for name in EMBEDDED} == scaled


# Columns that ask for the same stream, on purpose.
ONE_STREAM = {
    "embedded/scenarios": [{("(a) MNIST",), ("(b) 25 a corruption",)}],
    "decide/real": [{("CLIP 1", ratio), ("CLIP 17", ratio)} for ratio in ("0", "0.1", "1")],
}


@pytest.mark.parametrize("name", NAMES)
def test_a_suite_expands_into_distinct_cells_with_whole_specs(name: str, suites: dict[str, Suite]) -> None:
    suite = suites[name]
    cells = expand(suite)
    assert cells
    assert len({(cell.row, cell.column, cell.seed) for cell in cells}) == len(cells)
    assert {cell.seed for cell in cells} == set(suite.seeds)
    for cell in cells:
        assert len(cell.row) == len(suite.rows)
        assert len(cell.column) == len(suite.columns)
        assert cell.spec.seed == cell.seed
        assert cell.spec.limit == cell.fields.get("limit")
        assert cell.spec.options == cell.fields.get("options", {})
    # One spec in several cells only where an option does not reach the frozen model, or where two columns are one
    # stream.
    shared: dict[str, set[tuple]] = {}
    for cell in cells:
        shared.setdefault(json.dumps(cell.fields, sort_keys=True), set()).add((cell.row, cell.column))
    for spec, places in shared.items():
        columns = {column for _, column in places}
        known = columns in ONE_STREAM.get(name, []) and len({row for row, _ in places}) == 1
        assert len(places) == 1 or known or json.loads(spec).get("method") == "zero_shot"


@pytest.mark.parametrize("name", NAMES)
def test_the_frozen_row_comes_first(name: str, suites: dict[str, Suite]) -> None:
    cells = expand(suites[name])
    methods = {cell.spec.method for cell in cells}
    if name.partition("/")[2] in WITHOUT_FROZEN_ROW:
        assert methods == {"rosita"}
        return
    assert "zero_shot" in methods
    # Wherever rows share their outer names (such as the backbone), the first of them is frozen.
    first: dict[tuple[str, ...], str] = {}
    for cell in cells:
        first.setdefault((cell.spec.backbone, *cell.row[:-1]), cell.spec.method)
    frozen = [group for group, method in first.items() if method == "zero_shot"]
    assert next(iter(first.values())) == "zero_shot"
    assert len(frozen) == len(first) or name.endswith(("/parameters", "/beyond", "/rare"))


@pytest.mark.parametrize("name", PAPER)
def test_every_cell_has_its_figure_in_the_paper(name: str, suites: dict[str, Suite]) -> None:
    suite = suites[name]
    for cell in expand(suite):
        # The paper has no figure for the recommended rule, whose method is zero_shot too.
        assert bool(figures(suite, cell)) != (cell.spec.profile == "field") or cell.spec.method == "zero_shot"
        assert cell.spec.profile != "field" or not figures(suite, cell), cell.paper
        for metric in suite.metrics:
            found = find(**cell.paper, metric=metric)
            assert len({value.value for value in found}) <= 1 or all(value.doubt for value in found), found


def test_every_figure_of_the_paper_has_a_cell(suites: dict[str, Suite]) -> None:
    reached = {value for name in PAPER for cell in expand(suites[name]) for value in figures(suites[name], cell)}
    left = [value for value in paper_values() if value not in reached and not value.metric.startswith("delta_")]
    assert {value.table for value in left} == {"tab:dataset-details"}


def test_a_cell_maps_to_the_figure_it_stands_for(suites: dict[str, Suite]) -> None:
    """Looked up in the paper by eye."""
    for name, row, column, metric, expected in (
        ("paper/table-cifar", ("MaPLe", "palign_c"), ("C-100C/Tiny",), "hm", 48.15),
        ("paper/table-visda-domainnet", ("CLIP", "dpe"), ("Sketch/MNIST",), "hm", 32.18),
        ("paper/scenarios", ("dpe",), ("(a) SVHN",), "hm", 50.12),
        ("paper/scenarios", ("rosita",), ("(b) 500 a corruption",), "hm", 67.97),
        ("paper/scenarios", ("prototypes",), ("(c) ratio 0.4",), "hm", 68.85),
        ("paper/identifiers", ("rosita MSP 0.3/0.5/0.7",), ("VisDA/MNIST",), "hm", 50.87),
        ("paper/identifiers", ("unient DAF",), ("IN-C/MNIST",), "hm", 46.52),
        ("paper/k", ("K=0",), ("IN-C/MNIST",), "hm", 42.05),
        ("paper/reliable", ("tau/tau/tau",), ("IN-R/MNIST",), "hm", 83.28),
        ("paper/corruption-types", ("MaPLe", "rosita"), ("jpeg", "C-10C/SVHN"), "fpr95", 29.06),
        ("paper/parameters", ("AdamW", "lora"), ("ImageNet-R", "1e-4"), "accuracy", 18.63),
        ("paper/lora-rank", ("LoRA 4",), (), "adapted_parameters", 221184),
        ("paper/prompt-optimiser", ("TPT-C",), ("SGD 1e-3",), "acc_undesired", 29.77),
        ("paper/complexity", ("MaPLe", "tpt"), ("C-100C/MNIST",), "ms", 370),
        ("paper/backbones", ("OpenCLIP ViT-L/14", "tda"), ("C-100C/C-10C",), "hm", 61.20),
    ):
        (found,) = [cell for cell in expand(suites[name]) if (cell.row, cell.column) == (row, column)]
        assert {value.value for value in find(**found.paper, metric=metric)} == {expected}, (name, row, column)
    (continual,) = expand(
        suites["paper/ctta"], only={"method": ["rosita"], "backbone": ["MaPLe"], "stream": ["C-10C/Tiny"]}
    )
    assert [value.value for value in find(**continual.paper, metric="hm")] == [65.71]
    assert [value.value for value in find(**continual.paper_part("elastic"), metric="hm")] == [62.81]


def test_every_label_of_the_paper_is_covered_or_out_of_scope(suites: dict[str, Suite]) -> None:
    covered = {label for name in PAPER for label in suites[name].labels}
    assert {value.table for value in paper_values()} <= covered | set(OUT_OF_SCOPE)
    if not LATEX.exists():
        pytest.skip("the LaTeX of the paper (shared/paper) is not beside the project")
    latex = LATEX.read_text(encoding="utf-8")
    labels = set(re.findall(r"\\label\{((?:app-)?(?:tab|fig)(?:-app)?:[^}]+)\}", latex))
    macros = {name for name in re.findall(r"\\newcommand\{\\(table\w+)\}", latex) if name.startswith("tableDetailed")}
    assert len(labels) > 35
    # The detailed loss ablation has a label; the other detailed tables go by the names of their macros.
    assert labels | macros - {"tableDetailedLossAblation"} == covered | set(OUT_OF_SCOPE)
    assert not covered & set(OUT_OF_SCOPE)


@pytest.mark.parametrize("name", EMBEDDED)
def test_embedded_suites_need_nothing_but_what_ships_and_small_data(name: str, suites: dict[str, Suite]) -> None:
    data = {"cifar10c", "cifar100c", "mnist", "svhn", "tiny_imagenet20", None}
    for cell in expand(suites[name]):
        assert cell.spec.backbone in ("embedded", "embedded+maple")
        assert {cell.spec.desired, cell.spec.undesired} <= data
        assert cell.spec.limit is not None
        assert cell.spec.limit <= 2000


@pytest.mark.parametrize("name", NAMES)
def test_prompts_of_the_image_tower_are_tuned_only_where_there_are_some(name: str, suites: dict[str, Suite]) -> None:
    for cell in expand(suites[name]):
        assert "palign" not in cell.spec.method or "+maple" in cell.spec.backbone


def test_the_options_of_a_cell_exist(suites: dict[str, Suite]) -> None:
    used = {
        (cell.spec.method, cell.spec.identifier, option)
        for suite in suites.values()
        for cell in expand(suite)
        for option in cell.spec.options
    }
    assert {"losses", "k", "reliable", "thresholds", "group", "rank", "optimiser", "features"} <= {
        use[2] for use in used
    }
    for method, identifier, option in used:
        assert method in METHODS
        assert identifier in IDENTIFIERS
        owners = [options_by_owner()[owner] for owner in (method, identifier, "adapter")]
        assert option in {field.name for owner in owners for field in dataclasses.fields(owner)}, (method, option)


SMALL = """
title = "Two axes"
what = "nowhere"
labels = ["tab:cifar"]
metrics = ["hm"]
rows = ["method"]
columns = ["rate", "undesired"]
seeds = [3, 4]
limit = 20

[base]
desired = "cifar10c"
options = { k = 3 }

[axes]
undesired = ["mnist", "svhn"]

[axes.method]
zero_shot = { method = "zero_shot", drop = ["k", "lr"] }
rosita = { paper.setting = "" }
closed = { undesired = "", limit = 7 }

[axes.rate]
slow = { options.lr = 1e-4 }
fast = { options.lr = 1e-2, scenario = { kind = "frequent", images = 100 } }

[[skip]]
where = { method = ["closed"], undesired = ["svhn"] }
reason = "there are no undesired images"
"""


def small(tmp_path: Path, text: str = SMALL) -> Suite:
    path = tmp_path / "small.toml"
    path.write_text(text)
    return read_suite(path, "embedded/small")


def test_expansion_worked_out_by_hand(tmp_path: Path) -> None:
    suite = small(tmp_path)
    cells = expand(suite, seeds=[0])
    assert [(*cell.row, *cell.column) for cell in cells] == [
        ("zero_shot", "slow", "mnist"), ("zero_shot", "slow", "svhn"), ("zero_shot", "fast", "mnist"),
        ("zero_shot", "fast", "svhn"),
        ("rosita", "slow", "mnist"), ("rosita", "slow", "svhn"), ("rosita", "fast", "mnist"),
        ("rosita", "fast", "svhn"),
        ("closed", "slow", "mnist"), ("closed", "fast", "mnist"),
    ]  # fmt: skip
    # Fields at their default (here cifar10c, mnist, rosita, seed 0) are left out.
    assert cells[0].fields == {"limit": 20, "method": "zero_shot"}
    assert cells[5].fields == {"limit": 20, "undesired": "svhn", "options": {"k": 3, "lr": 1e-4}}
    frequent = {"kind": "frequent", "images": 100}
    assert cells[6].fields == {"limit": 20, "options": {"k": 3, "lr": 1e-2}, "scenario": frequent}
    # The axis `undesired` is applied first, as it stands first in the file, and the closed set wins over it.
    assert cells[8].fields == {"limit": 7, "undesired": None, "ratio": 0.0, "options": {"k": 3, "lr": 1e-4}}
    assert cells[8].spec.undesired is None
    assert cells[5].paper == {
        "table": ["tab:cifar"], "backbone": "clip-vit-b16", "desired": "cifar10c", "undesired": "svhn",
        "scenario": "single",
        "method": "rosita", "setting": "",
    }  # fmt: skip
    assert cells[8].paper["setting"] == "k=3;lr=0.0001"
    assert cells[6].paper["scenario"] == "frequent/100"
    assert cells[6].paper_part("snow")["scenario"] == "frequent/snow"
    assert [cell.seed for cell in expand(suite)][:4] == [3, 4, 3, 4]
    # A limit lowers, it never raises: a column of so many images a corruption keeps its meaning.
    assert [cell.spec.limit for cell in expand(suite, limit=9, seeds=[0])] == [9] * 8 + [7] * 2


def test_the_split_is_no_matter_of_the_papers_figures(suites: dict[str, Suite]) -> None:
    cell = expand(suites["paper/table-cifar"])[0]
    assert (cell.spec.undesired, cell.paper["undesired"]) == ("mnist:train", "mnist")


def test_only_keeps_the_chosen_entries(tmp_path: Path) -> None:
    suite = small(tmp_path)
    only = parse_only(["method=rosita, zero_shot", "rate=slow"])
    assert only == {"method": ["rosita", "zero_shot"], "rate": ["slow"]}
    cells = expand(suite, only=only)
    # In the order of the suite, not of the wish: the frozen row stays first.
    assert [cell.row[0] for cell in cells if cell.seed == 3] == ["zero_shot", "zero_shot", "rosita", "rosita"]
    assert runs(cells) == 8
    with raises("entry-unknown", match=r"There is no entry of method 'rosta'; did you mean 'rosita'\."):
        expand(suite, only={"method": ["rosta"]})
    with raises("axis-unknown", match="There is no axis 'methods'; did you mean 'method'"):
        expand(suite, only={"methods": ["rosita"]})
    with raises("option-unreadable"):
        parse_only(["method"])


@pytest.mark.parametrize(
    ("before", "after", "words"),
    [
        ('desired = "cifar10c"', 'desird = "cifar10c"', "unknown metrics or fields"),
        ('metrics = ["hm"]', 'metrics = ["harmonic"]', "unknown metrics or fields"),
        ('rows = ["method"]', 'rows = ["method", "rate"]', "every axis must be a row or a column, once"),
        ('where = { method = ["closed"]', 'where = { method = ["shut"]', "a skip rule names method"),
        ("slow = { options.lr", "slow = { option.lr", "sets 'option', which is not a field of a run"),
        ('title = "Two axes"', 'titel = "Two axes"', "titel|title"),
        ("slow =", '"slow, sure" =', "comma"),
        ("[axes]", "[axes", "is not a suite file"),
        ("slow = { options.lr = 1e-4 }", "slow = 3", "is not a suite file"),
        ("slow = { options.lr = 1e-4 }", "slow = { options = 3 }", "options: Input should be a valid dictionary"),
        ("slow = { options.lr = 1e-4 }", "slow = { scenario = 3 }", "scenario: "),
        ("slow = { options.lr = 1e-4 }", "slow = { scenario = {} }", "scenario: "),
        ("slow = { options.lr = 1e-4 }", "slow = { severity = [5] }", "severity: "),
        ("options = { k = 3 }", "options = 3", "options: "),
        ("options = { k = 3 }", "scenario = 3", "scenario: "),
        ('metrics = ["hm"]', "metrics = []", "metrics: .*at least 1 item"),
        ("seeds = [3, 4]", "seeds = []", "seeds: .*at least 1 item"),
        ('undesired = ["mnist", "svhn"]', "undesired = []", "entries: .*at least 1 item"),
        ("options = { k = 3 }", f"options = {{ k = {'[' * 50_000} }}", "nested too deeply"),
    ],
)  # fmt: skip
def test_a_wrong_file_is_an_error_in_one_sentence(tmp_path: Path, before: str, after: str, words: str) -> None:
    assert before in SMALL
    with pytest.raises(Error, match=words) as raised:
        small(tmp_path, SMALL.replace(before, after))
    assert str(raised.value).endswith(".")
    assert "\n" not in str(raised.value)


@pytest.mark.parametrize(
    ("before", "after"),
    [
        ('{ kind = "frequent", images = 100 }', '{ kind = "frequent" }'),
        ("options = { k = 3 }", f"options = {{ k = 1{'0' * 400} }}"),
        ("options = { k = 3 }", "options = { k = 1979-05-27 }"),
    ],
)
def test_an_odd_file_still_expands(tmp_path: Path, before: str, after: str) -> None:
    assert before in SMALL
    cells = expand(small(tmp_path, SMALL.replace(before, after)))
    assert len(cells) == 20
    assert 0 < runs(cells) <= 20
    assert all(cell.spec.seed in (3, 4) for cell in cells)


def test_a_mistyped_name_is_met_with_the_nearest() -> None:
    with raises("suite-unknown", match=r"^There is no suite 'k'; did you mean 'embedded/k' or 'paper/k'\.$"):
        load_suite("k")
    with raises("suite-unknown", match=r"^There is no suite 'paper/table-cifer'; did you mean 'paper/table-cifar'\.$"):
        load_suite("paper/table-cifer")
    with raises("suite-unknown", match=r"^There is no suite '../secret'; `ostta bench ls` lists them\.$"):
        load_suite("../secret")


def test_an_impossible_run_says_which() -> None:
    cell = Cell({"severity": "high"}, ("rosita",), ("fog",), 0, {})
    with raises("run-invalid", match=r"^The run rosita / fog is not possible \(severity: .*\)\.$"):
        _ = cell.spec


def listed(*arguments: str, monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """What `ostta bench ls` prints into a pipe, however wide the terminal is said to be."""
    monkeypatch.setattr(sys, "argv", ["ostta", "bench", "ls", *arguments])
    monkeypatch.setenv("COLUMNS", "40")
    out = io.StringIO()
    with redirect_stdout(out), pytest.raises(SystemExit) as stop:
        main()
    assert stop.value.code in (0, None)
    return out.getvalue().splitlines()


def test_bench_ls_names_all_suites_one_a_line(monkeypatch: pytest.MonkeyPatch) -> None:
    lines = listed(monkeypatch=monkeypatch)
    for name in NAMES:
        assert any(line.startswith(f"{name} ") for line in lines), name
    (line,) = [line for line in lines if "paper/seeds" in line]
    assert re.search(r"tab-app:random-seeds\s+80$", line)  # 2 methods, 8 streams, 5 seeds
    assert not any("│" in line for line in lines)


OWN = """
base = { desired = "sample:cifar10c", limit = 8, draw = "images" }
seeds = [0, 1]
[axes]
method = ["zero_shot", "rosita"]
undesired = ["sample:mnist", "sample:cifar10"]
"""


def test_a_suite_of_ones_own_needs_axes_alone(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = tmp_path / "mine.toml"
    path.write_text(OWN)
    suite = load_suite(str(path))
    assert (suite.title, suite.what, suite.labels, suite.place) == ("mine", "", (), "")
    assert (suite.rows, suite.columns) == (("method",), ("undesired",))
    assert suite.metrics == ("auroc", "fpr95", "acc_desired", "acc_undesired", "hm")
    assert {cell.spec.draw for cell in expand(suite)} == {"images"}
    lines = listed(str(path), monkeypatch=monkeypatch)
    assert any(re.match(rf"{re.escape(str(path))} .* 8$", line) for line in lines)
    assert any(re.match(r"undesired +columns +sample:mnist, sample:cifar10$", line) for line in lines)
    for given, rows, columns in (
        ('rows = ["undesired"]', ("undesired",), ("method",)),
        ('columns = ["method"]', ("undesired",), ("method",)),
        ('rows = ["method", "undesired"]', ("method", "undesired"), ()),
    ):
        path.write_text(f"{given}\n{OWN}")
        again = load_suite(str(path))
        assert (again.rows, again.columns) == (rows, columns)
    path.write_text("[axes]\ndesired = ['cifar10c', 'cifar100c']\n")
    assert load_suite(str(path)).rows == ("desired",)


def test_paths_of_a_suite_start_at_its_folder(tmp_path: Path) -> None:
    path = tmp_path / "suites" / "mine.toml"
    path.parent.mkdir()
    path.write_text(
        """
        [base]
        backbone = "features:../x.npz"
        desired = "features:../x.npz"
        [axes.stream]
        own = { undesired = "folder:textures" }
        domains = { scenario = { kind = "domains", domains = [{ desired = "parquet:one.parquet" }] } }
        """
    )
    own, domains = (cell.spec for cell in expand(load_suite(str(path))))
    assert {own.backbone, own.desired} == {f"features:{tmp_path}/x.npz"}
    assert own.undesired == f"folder:{tmp_path}/suites/textures"
    assert domains.scenario.domains[0].desired == f"parquet:{tmp_path}/suites/one.parquet"


def test_the_words_of_ones_own_suite_are_not_the_papers(tmp_path: Path) -> None:
    path = tmp_path / "mine.toml"
    path.write_text(f'what = "mine"\nlabels = ["tab:mine"]\n{OWN}')
    assert load_suite(str(path)).place == "mine"
    assert load_suite("embedded/k").place.startswith("in the paper: ")


def test_all_that_is_wrong_with_a_file_is_said_at_once(tmp_path: Path) -> None:
    path = tmp_path / "wrong.toml"
    path.write_text(
        'titel = "x"\nmetrics = ["harmonic"]\nlimit = "many"\n[base]\ndesird = "cifar10c"\nseverity = "high"\n'
        '[axes.method]\na = { methd = "zero_shot" }\n"b,c" = { severity = [5] }\n'
    )
    with raises("suite-invalid") as raised:
        load_suite(str(path))
    sentence = str(raised.value)
    assert "6 problems" in sentence
    assert "\n" not in sentence
    for words in (
        "base: unknown metrics or fields: ['desird']; severity: ",
        "axes.method.a: the entry 'a' sets 'methd', which is not a field of a run; did you mean 'method'",
        "axes.method.b,c: ",
        "metrics: unknown metrics or fields: 'harmonic'",
        "limit: ",
        "titel: there is no such field",
    ):
        assert words in sentence
    path.write_text("title = 'x'\n")
    with raises("suite-invalid"):
        load_suite(str(path))


def test_the_page_lists_every_suite_with_its_runs(suites: dict[str, Suite]) -> None:
    page = (ROOT / "docs" / "suites.md").read_text(encoding="utf-8")
    listed = {}
    for short, paper, embedded in re.findall(r"^\| `([\w-]+)` \|.*\| ([\d–]+) \| ([\d–]+)[^|]*\|$", page, re.MULTILINE):
        listed |= {f"paper/{short}": paper, f"embedded/{short}": embedded}
    listed |= dict(re.findall(r"^\| `((?:decide|photos)/[\w-]+)` \|.*\| ([\d]+) \|$", page, re.MULTILINE))
    assert {name: int(count) for name, count in listed.items() if count != "–"} == {
        name: runs(expand(suite)) for name, suite in suites.items()
    }
    values = paper_values()
    assert f"holds {len(values):,} of" in page
    assert f"for {len([value for value in values if value.doubt])} of them" in page


def test_undesired_classes_alone_are_of_the_desired_set(tmp_path: Path) -> None:
    path = tmp_path / "own.toml"
    path.write_text(
        'base = { desired = "sample:cifar10c", undesired_classes = ["frog"], limit = 6 }\n[axes]\nmethod = '
        '["zero_shot", "tda"]\n'
    )
    cells = expand(load_suite(str(path)))
    assert {cell.spec.undesired for cell in cells} == {"sample:cifar10c"}
    assert "frog" not in compose(cells[0].spec, None).classes
    named = RunSpec(desired="sample:cifar10c", undesired="sample:cifar10c", undesired_classes=["frog"])
    assert RunSpec(desired="sample:cifar10c", undesired_classes=["frog"]) == named
    assert RunSpec(undesired_classes=["frog"], undesired="mnist").undesired == "mnist"


def test_the_profile_field_has_its_parts_where_none_is_named(tmp_path: Path) -> None:
    parts = {"method": "zero_shot", "score": "field", "identifier": "field"}
    assert RunSpec(profile="field") == RunSpec(profile="field", **parts)
    assert RunSpec(profile="field", identifier="lda").method == "rosita"
    path = tmp_path / "own.toml"
    path.write_text(
        'base = { desired = "sample:cifar10c", undesired = "sample:mnist", profile = "field" }\n'
        '[axes.variant]\nown = {}\nmethod = { method = "rosita" }\nidentifier = { identifier = "lda" }\n'
    )
    cells = {cell.row[0]: cell.spec for cell in expand(load_suite(str(path)))}
    assert name_of(cells["own"]) == "field"
    for name in ("method", "identifier"):
        spec = cells[name]
        assert (spec.profile, spec.method, spec.score, spec.identifier) == ("field", "rosita", None, "lda")


# --- what a suite needs -----------------------------------------------------------------------------------------------
def lacking(name: str, root: Path, **fields: object) -> str:
    """What the check before the first run says of a desired set that is not there."""
    spec = RunSpec(**{"desired": name, "undesired": "sample:mnist", **fields})
    (missing,) = missing_for([spec], root)
    assert missing.data == ("score" not in fields)
    return missing.reason


def test_hints_name_the_split_and_the_corruption_that_are_missing(tmp_path: Path) -> None:
    assert "`ostta data get mnist:train`" in lacking("mnist:train", tmp_path)
    assert "`ostta data get svhn:train`, or put train_32x32.mat" in lacking("svhn:train", tmp_path)
    assert "`ostta data get mnist`, or put the test split" in lacking("mnist", tmp_path)
    hint = lacking("imagenetc", tmp_path, corruption="fog")
    assert hint.index("`ostta data get imagenetc --corruption fog`") < hint.index("image-net.org")
    assert "did you mean 'max'" in lacking("sample:cifar10", tmp_path, score="maxx")


def test_only_missing_data_lead_to_a_hint_about_downloads(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    for fields, told in (({"desired": "mnist"}, True), ({"desired": "sample:cifar10", "score": "maxx"}, False)):
        missing = missing_for([RunSpec(undesired="sample:mnist", **fields)], tmp_path)
        print_missing(MissingError(missing, 1), "paper/table-imagenet")
        shown = "`ostta data get --for paper/table-imagenet --data FOLDER`" in capsys.readouterr().err
        assert shown is told


def test_the_data_sets_of_every_suite_can_be_named(suites: dict[str, Suite]) -> None:
    for suite in suites.values():
        named = sets_needed([cell.spec for cell in expand(suite)])
        assert len(named) == len(set(named)) > 0
    changing = sets_needed([cell.spec for cell in expand(suites["paper/ctta"])])
    assert {corruption for name, corruption in changing if name == "cifar10c"} == set(corruption_names())


def test_getting_all_data_sets_of_a_suite(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    fetched: list[tuple[str, str]] = []

    def fetch(name: str, root: Path, *, corruption: str, watch: object) -> list[Path]:
        fetched.append((name, corruption))
        if name == "svhn:train":
            raise Error("The server is away.")
        return [root / name]

    monkeypatch.setattr("ostta.data_tools.get.get_dataset", fetch)
    (tmp_path / "small.toml").write_text(
        SMALL.replace('"svhn"]\n\n[axes.m', '"svhn:train"]\n\n[axes.m').replace('["svhn"]', '["svhn:train"]')
    )
    done = CliRunner().invoke(app, ["data", "get", "--for", str(tmp_path / "small.toml"), "--data", str(tmp_path)])
    assert done.exit_code == 1
    assert ("cifar10c", "snow") in fetched
    assert "svhn:train is missing: The server is away." in done.stdout
    for arguments in ([], ["mnist", "--for", "paper/seeds"]):
        refused = CliRunner().invoke(app, ["data", "get", *arguments, "--data", str(tmp_path)])
        assert "Give either the name of a data set" in str(refused.exception)
