"""`ostta run` with a configuration, several seeds and several values.

Which runs there are, what is said about them, and the log.
"""

from __future__ import annotations

import re
import sys
from pathlib import Path
from types import SimpleNamespace

import pytest
from typer.testing import CliRunner

from helpers.cases import backbone
from helpers.errors import raises
from ostta.bench import log as log_module
from ostta.bench import runner as grid_module
from ostta.bench.log import RunLog, check_log
from ostta.bench.result import read_result
from ostta.bench.run import carry_out, ensure_result, prepare
from ostta.bench.spec import RunSpec, is_frozen
from ostta.bench.stream import compose
from ostta.bench.suite import expand, load_suite
from ostta.bench.sweep import Sweep, sweep_of
from ostta.bench.workers import inside
from ostta.cli.app import app
from ostta.core.types import Error

SAMPLES = {"desired": "sample:cifar10c", "undesired": "sample:mnist"}


def ostta(*arguments: object):
    return CliRunner(env={"OSTTA_DATA": None}).invoke(app, ["run", *map(str, arguments)])


def said(done) -> str:
    """The sentence of an Error, which `ostta` itself prints."""
    assert isinstance(done.exception, Error), done.output
    return str(done.exception)


@pytest.fixture
def here(monkeypatch: pytest.MonkeyPatch) -> None:
    """Runs in this process: starting others would mostly import libraries."""
    monkeypatch.setattr(
        grid_module, "local", lambda jobs, workers, threads, step, *, fresh: inside(jobs, threads, step)
    )


# --- which runs -------------------------------------------------------------------------------------------------------
def test_values_make_a_grid_but_for_options_that_are_lists() -> None:
    sweep = sweep_of(RunSpec(**SAMPLES), {"lr": ["1e-3,3e-3"], "k": ["3", "5"], "losses": ["re,d"]}, [0, 1])
    assert sweep.values == {"lr": [0.001, 0.003], "k": [3, 5]}
    assert sweep.spec.options == {"losses": ["re", "d"]}
    entries = sweep.entries()
    assert list(entries) == ["zero_shot", "lr=0.001 k=3", "lr=0.001 k=5", "lr=0.003 k=3", "lr=0.003 k=5"]
    assert is_frozen(entries["zero_shot"])
    assert entries["zero_shot"].options == {}
    assert entries["lr=0.003 k=3"].options == {"losses": ["re", "d"], "lr": 0.003, "k": 3}
    lists = sweep_of(RunSpec(**SAMPLES), {"losses": ["re", "re,d"]}, [0])
    assert list(lists.entries()) == ["zero_shot", "losses=re", "losses=re+d"]
    with raises("option-conflict"):
        sweep_of(RunSpec(**SAMPLES), {"lr": ["1e-3,0.001"]}, [0])


@pytest.mark.parametrize(
    "fields",
    [
        {},
        {"score": "dart", "identifier": "daf", "profile": "field", "method": "zero_shot"},
        {"undesired": None, "ratio": 0.0, "limit": 7, "classes": ['a "quoted", name', "b\\c\x7f"]},
        {"scenario": {"kind": "frequent", "images": 3, "corruptions": ["snow", "fog"]}, "draw": "images"},
        {"undesired": "sample:cifar10c", "undesired_classes": ["cat"], "guard": True, "severity": 3},
    ],
)
def test_a_sweep_is_a_suite_with_the_same_runs(fields: dict, tmp_path: Path) -> None:
    given = RunSpec(**{**SAMPLES, **fields})
    sweep = Sweep(given, {"reset_every": [3, 4]}, (2, 5))
    suite = load_suite(str(sweep.write(tmp_path)))
    asked = [cell.spec for cell in expand(suite)]
    wanted = [spec.model_copy(update={"seed": seed}) for spec in sweep.entries().values() for seed in (2, 5)]
    assert asked == wanted
    assert (suite.rows, suite.seeds, suite.place) == (("variant",), (2, 5), suite.what)


def test_the_frozen_classifier_alone_has_one_row() -> None:
    assert list(Sweep(RunSpec(method="zero_shot", **SAMPLES), {}, (0, 1)).entries()) == ["zero_shot"]


# --- on which images a value is chosen --------------------------------------------------------------------------------
@pytest.mark.parametrize(
    ("desired", "undesired", "words"),
    [
        (
            "sample:cifar10c",
            "sample:mnist",
            "WARNING: values of options were compared on test images (sample:cifar10c ",
        ),
        ("cifar10c:train", "mnist", "WARNING"),
        (
            "cifar10c:train",
            "mnist:train",
            "compared on training images (cifar10c:train under snow 5 against mnist:train)",
        ),
        ("folder:/pets", "mnist:train", "images that were not used for the choice"),
    ],
)
def test_a_choice_says_on_which_images_it_was_made(desired: str, undesired: str, words: str) -> None:
    spec = RunSpec(desired=desired, undesired=undesired)
    assert words in Sweep(spec, {"lr": [1e-3, 1e-2]}, (0,)).remark()
    assert Sweep(spec, {}, (0, 1)).remark() == ""


def test_a_sweep_prints_a_table_and_writes_a_page_that_warn(here: None, tmp_path: Path) -> None:
    done = ostta("--limit", 6, "--set", "lr=1e-3,1e-2", "--seeds", "0,1", "--out", tmp_path)
    assert done.exit_code == 0, done.output
    assert done.stdout.splitlines()[0].startswith("No data folder is given, so included samples are used: sample:")
    suite = Path(done.stdout.splitlines()[-1])
    rows = re.findall(r"^\| (zero_shot|lr=[\d.]+) ", done.stdout, re.MULTILINE)
    assert rows[:3] == ["zero_shot", "lr=0.001", "lr=0.01"]
    best = re.search(r"The best HM is (?:that of|the same for) (lr=0.0?01(?:, lr=0.01)?)[^.]*\. WARNING", done.stdout)
    assert best is not None
    page = suite.with_suffix(".html").read_text(encoding="utf-8")
    assert "were compared on test images (sample:cifar10c under snow 5 against sample:mnist, 6 desired images)" in page
    assert f"The best HM: {best[1].replace(', ', ' and ')} on this stream." in page
    assert "in the paper" not in page
    assert "The seeds reorder the same images" in done.stdout
    assert len(list(tmp_path.glob("*.json"))) == 6
    again = ostta("--limit", 6, "--set", "lr=1e-3,1e-2", "--seeds", "0,1", "--out", tmp_path)
    assert again.stdout.splitlines()[-1] == str(suite)
    assert len(list(tmp_path.glob("*.json"))) == 6


def test_seeds_that_draw_images_do_not_say_that_they_are_the_same(here: None, tmp_path: Path) -> None:
    done = ostta("--method", "zero_shot", "--limit", 6, "--draw", "images", "--seeds", "0,1", "--out", tmp_path)
    assert done.exit_code == 0, done.output
    assert "Mean ± sample standard deviation over the seeds 0, 1" in done.stdout
    assert "The seeds reorder the same images" not in done.stdout
    results = [read_result(path) for path in tmp_path.glob("*.json")]
    assert {result.stream.draw for result in results} == {"images"}
    images = [set(_numbers(result.spec)) for result in results]
    assert images[0] != images[1]


def _numbers(spec: RunSpec) -> list[int]:
    samples = compose(spec, None).stream.starting_at(0, lambda domain, known, number: False)
    return [sample.index for sample in samples if sample.label >= 0]


def test_a_draw_without_a_limit_says_that_there_is_nothing_to_draw() -> None:
    remarks = compose(RunSpec(**SAMPLES, draw="images"), None).remarks
    assert any("all 1,000 images are shown, so that a seed draws their order only" in remark for remark in remarks)


# --- one run ----------------------------------------------------------------------------------------------------------
def test_a_run_is_set_against_the_frozen_result_in_the_folder(tmp_path: Path) -> None:
    arguments = ["--limit", 8, "--out", tmp_path]
    first = ostta("--method", "rosita", *arguments)
    assert re.search(
        r"ΔHM        – \(the folder has no frozen result of this stream: --method zero_shot computes it\)", first.stdout
    )
    frozen = ostta("--method", "zero_shot", *arguments)
    assert re.search(r"ΔHM        –$", frozen.stdout, re.MULTILINE)
    ostta("--method", "zero_shot", "--seed", 1, *arguments)
    (tmp_path / "other.json").write_text("{}")
    second = ostta("--method", "rosita", *arguments)
    ours, base = (read_result(Path(done.stdout.splitlines()[-1])).metrics.hm for done in (second, frozen))
    assert f"ΔHM        {ours - base:+.2f}" in second.stdout
    assert second.stdout.splitlines()[-1] == first.stdout.splitlines()[-1]


def test_samples_stand_in_only_where_nothing_was_named(tmp_path: Path) -> None:
    arguments = ["--method", "zero_shot", "--limit", 4, "--out", tmp_path]
    done = ostta("--desired", "sample:cifar10", *arguments)
    assert "included samples are used: sample:mnist." in done.stdout
    assert "included samples" not in ostta("--desired", "sample:cifar10", "--ratio", 0, *arguments).stdout
    assert "needs the folder of your data sets" in said(ostta("--desired", "cifar10", *arguments))
    assert "is not in" in said(ostta("--data", tmp_path, *arguments))


# --- the configuration ------------------------------------------------------------------------------------------------
def test_a_configuration_is_what_would_be_typed(tmp_path: Path) -> None:
    path = tmp_path / "run.toml"
    path.write_text(
        f'method = "rosita"\ndesired = "sample:cifar10c"\nundesired = "sample:mnist"\nlimit = 4\nout = "{tmp_path}"\n'
        "records = true\nseverity = 3\n[set]\nlr = 1e-2\nlosses = ['re', 'd']\n"
    )
    done = ostta("--config", path, "--severity", 4, "--seed", 7)
    assert done.exit_code == 0, done.output
    result = read_result(Path(done.stdout.splitlines()[-1]))
    assert (result.spec.severity, result.spec.seed, result.spec.limit) == (4, 7, 4)
    assert result.spec.options == {"lr": 0.01, "losses": ["re", "d"]}
    assert result.records is not None


def test_a_name_with_a_comma_in_a_configuration_is_one_name(tmp_path: Path) -> None:
    path = tmp_path / "run.toml"
    path.write_text(
        'desired = "sample:cifar10c"\nundesired = "sample:mnist"\nlimit = 4\nprofile = "field"\n'
        'classes = ["crow, raven", "dog", "a", "b", "c", "d", "e", "f", "g", "h"]\n'
        f'out = "{tmp_path}"\n[set]\nwords = ["oak, tree", "rose"]\n'
    )
    with pytest.warns(UserWarning, match="was not trained on"):
        done = ostta("--config", path)
    assert done.exit_code == 0, done.output
    spec = read_result(Path(done.stdout.splitlines()[-1])).spec
    assert spec.classes is not None
    assert (spec.classes[:2], spec.options["words"]) == (["crow, raven", "dog"], ["oak, tree", "rose"])


@pytest.mark.parametrize(
    ("text", "words"),
    [
        (
            'methd = "rosita"\nlimt = 3\n',
            "there is no option 'methd'; did you mean 'method'; there is no option 'limt'",
        ),
        ("set = 3\n", "'set' is a table of options"),
        ("[limit]\na = 1\n", "'limit' is not a table"),
        ("config = 'other.toml'\n", "there is no option 'config'"),
        ("= 3\n", "is not TOML"),
    ],
)
def test_a_wrong_configuration_is_one_sentence(text: str, words: str, tmp_path: Path) -> None:
    path = tmp_path / "run.toml"
    path.write_text(text)
    sentence = said(ostta("--config", path))
    assert words in sentence
    assert "\n" not in sentence
    assert "cannot be read" in said(ostta("--config", tmp_path / "none.toml"))


# --- the log ----------------------------------------------------------------------------------------------------------
class Written:
    """Stands in for the writer of TensorBoard."""

    def __init__(self, folder: Path, first: int) -> None:
        self.folder, self.first, self.scores, self.figures, self.closed = folder, first, [], {}, False

    def add_scalar(self, name: str, value: float, done: int) -> None:
        if name == "stream/score":
            self.scores.append(done)

    def add_text(self, name: str, text: str) -> None:
        pass

    def add_hparams(self, options: dict, figures: dict, run_name: str) -> None:
        self.figures = figures

    def close(self) -> None:
        self.closed = True


@pytest.fixture
def written(monkeypatch: pytest.MonkeyPatch) -> list[Written]:
    writers: list[Written] = []

    def writer(folder: Path, first: int) -> Written:
        writers.append(Written(folder, first))
        return writers[-1]

    monkeypatch.setattr(log_module, "_summary_writer", writer)
    return writers


def test_a_run_is_logged(written: list[Written], tmp_path: Path) -> None:
    spec = RunSpec(method="rosita", limit=5, **SAMPLES)
    prepared = prepare(spec, None, backbone("wrapped"))
    path = ensure_result(prepared, tmp_path, log=f"tensorboard:{tmp_path / 'log'}").path
    (one,) = written
    assert (one.folder, one.first, one.closed) == (tmp_path / "log" / path.stem, 1, True)
    assert one.scores == list(range(1, 11))
    assert one.figures["figures/hm"] == read_result(path).metrics.hm


def test_a_long_run_is_thinned_and_a_full_disk_stops_nothing(written: list[Written], tmp_path: Path) -> None:
    prediction = SimpleNamespace(score=0.5, threshold=None, loss=None)
    log = RunLog(f"tensorboard:{tmp_path}", "run", 1, 10_001)
    for done in range(1, 10_002):
        log.step(done, prediction, None)
    (one,) = written
    assert len(one.scores) == 10_001 // 6 + 1
    assert one.scores[-1] == 10_001
    result, _ = carry_out(prepare(RunSpec(method="zero_shot", limit=2, **SAMPLES), None, backbone("wrapped")))

    def full(*_: object, **__: object) -> None:
        raise OSError(28, "No space left on device")

    one.add_scalar = one.add_text = one.close = full
    log.step(10_001, prediction, None)
    log.end(result)
    log.close()


def test_tensorboard_reads_what_was_written(tmp_path: Path) -> None:
    loader = pytest.importorskip("tensorboard.backend.event_processing.event_accumulator")
    spec = RunSpec(method="rosita", limit=5, **SAMPLES)
    folder = tmp_path / "curves"
    path = ensure_result(prepare(spec, None, backbone("wrapped")), tmp_path, log=f"tensorboard:{folder}").path
    read = loader.EventAccumulator(str(folder / path.stem))
    read.Reload()
    scores = read.Scalars("stream/score")
    assert [each.step for each in scores] == list(range(1, 11))
    result = read_result(path)
    assert read.Scalars("figures/auroc")[0].value == pytest.approx(result.metrics.auroc, rel=1e-6)
    assert {"stream/hm", "stream/threshold"} <= set(read.Tags()["scalars"])


def test_tensorboard_missing_is_a_sentence(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setitem(sys.modules, "tensorboard", None)
    with raises("library-missing"):
        RunLog(f"tensorboard:{tmp_path}", "run", 1, 10)


@pytest.mark.parametrize("name", ["tensorboard", "tensorboard:", "wandb:x", "", ":x"])
def test_a_log_that_does_not_exist_is_one_sentence(name: str, tmp_path: Path) -> None:
    with raises("option-unreadable"):
        check_log(name)
    assert "A log is named as" in said(ostta("--log", name, "--out", tmp_path / "out"))
    assert not (tmp_path / "out").exists()
