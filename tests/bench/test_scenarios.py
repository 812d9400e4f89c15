"""Scenarios as a run asks for them.

Specs, the data sets behind them, state that carries over, figures by domain, the command.
"""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pytest

import ostta
from helpers.cases import CLASSES, adapter, backbone, content, same, trace
from helpers.command import ostta as command
from ostta import Error
from ostta.bench import run as execute
from ostta.bench.request import read_scenario
from ostta.bench.result import read_result
from ostta.bench.spec import RunSpec
from ostta.bench.stream import compose
from ostta.core.types import Prediction
from ostta.data.by_name import open_dataset
from ostta.data.corruptions import corrupt, corrupt_pair, corruption_names
from ostta.evaluation.loop import Records, evaluate
from ostta.evaluation.metrics import mean
from ostta.streams import Sample


def spec(scenario: dict | None = None, **changes) -> RunSpec:
    fields = {"method": "zero_shot", "desired": "sample:cifar10c", "undesired": "sample:mnist", "limit": 6, **changes}
    return RunSpec.model_validate({**fields, **({} if scenario is None else {"scenario": scenario})})


# --- specs ------------------------------------------------------------------------------------------------------------
def test_a_plain_spec_is_written_as_before_there_were_scenarios() -> None:
    fields = [
        "backbone", "method", "identifier", "profile", "options", "desired", "undesired", "corruption", "severity",
        "ratio",
        "limit", "classes", "seed",
    ]  # fmt: skip
    assert list(RunSpec().model_dump()) == fields
    old = json.dumps({name: value for name, value in RunSpec(seed=3).model_dump().items() if name in fields})
    assert RunSpec.model_validate_json(old) == RunSpec(seed=3)
    assert RunSpec.model_validate_json(old).scenario.kind == "single"


@pytest.mark.parametrize(
    "scenario",
    [
        {"kind": "single", "undesired_corruption": "snow"},
        {"kind": "continual", "corruptions": ["snow", "fog"]},
        {"kind": "frequent", "images": 250, "corruptions": ["snow", "fog"], "undesired_corruption": "snow"},
        {"kind": "smooth", "speed": 1000, "corruptions": ["snow", "fog"], "budget": 7.5, "cells": 150},
        {"kind": "ordered"},
        {"kind": "domains", "domains": [{"desired": "visda"}, {"desired": "x", "undesired": "y", "severity": 2}]},
    ],
)
def test_every_form_survives_a_file(scenario: dict) -> None:
    asked = spec(scenario)
    written = json.loads(asked.model_dump_json())["scenario"]
    assert (
        scenario.items()
        <= {
            key: [{k: v for k, v in d.items() if v is not None} for d in value] if key == "domains" else value
            for key, value in written.items()
        }.items()
    )
    assert RunSpec.model_validate_json(asked.model_dump_json()) == asked
    assert asked != spec()
    hash(asked.scenario)


def test_defaults_are_the_benchmarks() -> None:
    assert read_scenario("continual").corruptions == corruption_names()
    assert len(corruption_names()) == 15
    # CCC at the difficulty that is in use has thirteen.
    assert set(corruption_names()) - set(read_scenario("smooth").corruptions) == {"brightness", "jpeg"}


def test_reading_a_scenario(tmp_path: Path) -> None:
    assert read_scenario("frequent", images=250, speed=None).images == 250
    file = tmp_path / "mine.json"
    file.write_text('{"kind": "domains", "domains": [{"desired": "a"}, {"desired": "b", "name": "evening"}]}')
    assert [domain.name for domain in read_scenario(str(file)).domains] == [None, "evening"]
    (tmp_path / "bad.json").write_text("{")
    (tmp_path / "other.json").write_text('{"kind": "circular"}')
    for asked, options, words in (
        ("continuous", {}, "There is no scenario 'continuous': choose one of single, continual"),
        ("continual", {"speed": 5}, "The scenario continual takes no `speed`, which belongs to smooth."),
        ("frequent", {"images": "many"}, "The scenario frequent cannot be used"),
        ("domains", {}, "It needs a list `domains`, given in a JSON file."),
        (str(tmp_path / "absent.json"), {}, "cannot be read"),
        (str(tmp_path / "bad.json"), {}, "is not JSON"),
        (str(tmp_path / "other.json"), {}, "whose `kind` is one of single"),
    ):
        with pytest.raises(Error) as problem:
            read_scenario(asked, **options)
        assert words in str(problem.value)
        assert str(problem.value).endswith(".")


# --- the data sets behind a stream ------------------------------------------------------------------------------------
def pixels(sample: Sample) -> list:
    return np.asarray(sample.image).tolist()


def test_continual_shows_the_sets_that_open_dataset_gives() -> None:
    made = compose(spec({"kind": "continual", "corruptions": ["fog", "snow"]}, severity=3, seed=2), None)
    assert made.stream.domains == ("fog", "snow")
    assert made.classes == CLASSES
    for number, corruption in enumerate(("fog", "snow")):
        reference = open_dataset("sample:cifar10c", corruption=corruption, severity=3, seed=2)
        here = [s for s in made.stream if s.domain == number and s.label >= 0]
        assert len(here) == 6
        assert all(pixels(s) == np.asarray(reference.image(s.index)).tolist() for s in here)
    assert (made.desired.images, made.undesired.images, made.desired.name) == (12, 12, "sample:cifar10c")
    assert "fog, severity 3" in made.desired.note
    assert "snow, severity 3" in made.desired.note
    assert len(made.remarks) == 1


@pytest.mark.parametrize("kind", ["continual", "frequent", "smooth", "single"])
def test_corrupted_undesired_sets_follow_or_stay(kind: str) -> None:
    """D25: the corruption of the desired side, or one that is named."""
    options = {
        "continual": {"corruptions": ["fog", "jpeg"]},
        "frequent": {"corruptions": ["fog", "jpeg"], "images": 3},
        "smooth": {"corruptions": ["fog", "jpeg"], "speed": 3},
        "single": {},
    }[kind]
    clean = open_dataset("sample:mnist")

    def corrupted(number: int, name: str) -> list:
        return corrupt(np.asarray(clean.image(number)), name, 5, seed=0, index=number).tolist()

    fixed = compose(spec({"kind": kind, **options, "undesired_corruption": "snow"}, undesired="sample:mnistc"), None)
    unknown = [s for s in fixed.stream if s.label < 0]
    assert unknown
    assert all(pixels(s) == corrupted(s.index, "snow") for s in unknown)
    follows = compose(spec({"kind": kind, **options}, undesired="sample:mnistc", corruption="fog"), None)
    for sample in follows.stream:
        if sample.label < 0 and kind != "smooth":
            assert pixels(sample) == corrupted(sample.index, follows_name(kind, sample.domain))
    if kind == "smooth":
        cell = follows.stream.cells[0]
        first = next(s for s in follows.stream if s.label < 0)
        named = (cell.first, cell.first_severity, cell.second, cell.second_severity)
        expected = corrupt_pair(np.asarray(clean.image(first.index)), *named, seed=0, index=first.index)
        assert pixels(first) == expected.tolist()
    # The order of a single domain never depended on corruptions, and recorded hashes hold it to that.
    assert (fixed.stream.hash == follows.stream.hash) == (kind == "single")


def follows_name(kind: str, domain: int) -> str:
    return "fog" if kind == "single" else ("fog", "jpeg")[domain]


def test_smooth_corrupts_the_clean_set_whichever_name_it_is_asked_by() -> None:
    clean = open_dataset("sample:cifar10")
    for name in ("sample:cifar10", "sample:cifar10c"):
        made = compose(spec({"kind": "smooth", "speed": 2, "budget": 2.0}, desired=name), None)
        first = next(s for s in made.stream if s.label >= 0)
        cell = made.stream.cells[0]
        assert (cell.first_severity, cell.second_severity) == (2.0, 0.0)
        expected = corrupt(np.asarray(clean.image(first.index)), cell.first, 2, seed=0, index=first.index)
        assert pixels(first) == expected.tolist()
        assert made.desired.name == first.source == name
        assert "total severity 2" in made.desired.note


def test_domains_of_ones_own() -> None:
    listed = [
        {"desired": "sample:cifar10"},
        {"desired": "sample:cifar10c", "corruption": "fog", "severity": 2},
        {"desired": "sample:cifar10c", "undesired": "sample:mnistc", "name": "winter"},
    ]
    made = compose(spec({"kind": "domains", "domains": listed}), None)
    assert made.stream.domains == ("sample:cifar10", "sample:cifar10c fog 2", "winter")
    sources = [{s.source for s in made.stream if s.domain == number and s.label < 0} for number in range(3)]
    assert sources == [{"sample:mnist"}, {"sample:mnist"}, {"sample:mnistc"}]
    assert made.undesired.name == "sample:mnist + sample:mnistc"


@pytest.mark.parametrize(
    ("scenario", "changes", "words"),
    [
        ({"kind": "continual"}, {"desired": "sample:cifar10"}, "changes the corruption, but 'sample:cifar10' has none"),
        ({"kind": "continual", "corruptions": ["rain"]}, {}, "There is no corruption 'rain'"),
        ({"kind": "smooth", "corruptions": ["rain", "fog"]}, {}, "There is no corruption 'rain'"),
        ({"kind": "continual", "corruptions": []}, {}, "the list of domains is empty"),
        ({"kind": "domains", "domains": []}, {}, "the list of domains is empty"),
        ({"kind": "frequent", "images": -5}, {}, "`images` must be an integer of at least 1, not -5"),
        ({"kind": "continual", "undesired_corruption": "rain"}, {"undesired": "sample:mnistc"}, "'rain'"),
        (
            None,
            {"desired": "ccc"},
            "The order of 'ccc' matters, and the scenario single does not keep it: use the scenario ordered.",
        ),
        ({"kind": "smooth"}, {"desired": "ccc"}, "use the scenario ordered"),
        (
            {"kind": "domains", "domains": [{"desired": "sample:cifar10"}, {"desired": "sample:mnist"}]},
            {},
            "All domains must have the same classes in the same order, but sample:mnist has",
        ),
        ({"kind": "domains", "domains": [{"desired": "sample:cifar10c", "severity": 0}]}, {}, "Severity 0"),
        (None, {"ratio": -1.0}, "`ratio`"),
        (None, {"limit": 0}, "`limit` must be at least 1"),
        (None, {"seed": -1}, "`seed`"),
    ],
)
def test_mistakes_come_out_before_any_work(scenario: dict | None, changes: dict, words: str) -> None:
    with pytest.raises(Error) as problem:
        compose(spec(scenario, **changes), None)
    assert words in str(problem.value)


# --- what carries over, and the figures -------------------------------------------------------------------------------
def stream_of(kind: str):
    options = {"continual": {}, "frequent": {"images": 2}}[kind]
    scenario = {"kind": kind, "corruptions": ["snow", "fog", "jpeg"], **options}
    return compose(spec(scenario, limit=8), None).stream


@pytest.mark.parametrize("kind", ["continual", "frequent"])
@pytest.mark.parametrize("method", ["zero_shot", "rosita", "tda"])
def test_state_carries_over_from_domain_to_domain(kind: str, method: str, monkeypatch, tmp_path: Path) -> None:
    stream = stream_of(kind)
    one, other = adapter(method), adapter(method)
    monkeypatch.setattr(ostta.Adapter, "reset", lambda self: pytest.fail("a domain change must not reset anything"))
    records = evaluate(one, stream)
    assert (one.steps, len(records)) == (len(stream), len(stream))
    # The score bank holds the scores of all domains, the frozen method's too.
    assert len(one.identifier.tensors()["scores"]) == len(stream)
    assert trace(records.predictions) == trace([other.step(sample.image) for sample in stream])
    assert same(content(one), content(other))
    # And over a restart in the middle of a domain.
    before = adapter(method)
    half = evaluate(before, list(stream)[:9])
    before.save(tmp_path / "s.ostta")
    after = ostta.Adapter.restore(tmp_path / "s.ostta", backbone("wrapped"))
    rest = evaluate(after, stream.starting_at(9))
    assert trace(half.predictions + rest.predictions) == trace(records.predictions)
    assert half.domain + rest.domain == records.domain


def hand_made(rows: list[tuple[int, int, float, bool, int]]) -> Records:
    """Rows of (domain, label, score, accepted, class named)."""
    records = Records()
    for number, (domain, label, score, known, index) in enumerate(rows):
        prediction = Prediction(None, index, known, score, 0.5, 0.6, 0.4, None, False, None, None)
        records.add(Sample(None, label, "made", number, domain), prediction)
    return records


def test_figures_by_domain_by_hand() -> None:
    records = hand_made(
        [
            (0, 1, 0.9, True, 1),  # right
            (0, 1, 0.8, True, 0),  # wrong class
            (1, 0, 0.3, False, 0),  # wrongly rejected
            (0, -1, 0.1, False, 0),  # rightly rejected
            (1, -1, 0.7, True, 0),  # wrongly accepted
            (2, 0, 0.6, True, 0),  # right, in a domain without unknown images
            (0, -1, 0.85, True, 0),  # wrongly accepted, in a later visit to domain 0
            (3, -1, 0.2, False, 0),  # rightly rejected, in a domain without known images
        ]
    )
    found = records.metrics_by_domain()
    assert list(found) == [0, 1, 2, 3]
    assert found[0]["acc_desired"] == found[0]["acc_undesired"] == found[0]["hm"] == 50.0
    # Of the four pairs, 0.8 against 0.85 alone is the wrong way round.
    assert found[0]["auroc"] == pytest.approx(75.0)
    assert (found[1]["acc_desired"], found[1]["acc_undesired"], found[1]["hm"], found[1]["auroc"]) == (0, 0, 0, 0)
    # A domain with one side has that side's figures, and nothing else.
    for number, sides in ((2, ("acc_desired", "accepted_desired", "accuracy")), (3, ("acc_undesired",))):
        present = {name: value for name, value in found[number].items() if value is not None}
        assert present == dict.fromkeys(sides, 100.0)
        assert found[number]["hm"] is None
    assert records.metrics()["hm"] == pytest.approx(50.0)


def test_a_domain_whose_scores_all_failed_still_has_figures() -> None:
    rows = [(0, 1, 0.9, True, 1), (0, -1, 0.1, False, 0), (1, 1, np.nan, False, -1), (1, -1, np.nan, False, -1)]
    found = hand_made(rows).metrics_by_domain()
    assert (found[1]["acc_desired"], found[1]["acc_undesired"], found[1]["hm"]) == (0.0, 100.0, 0.0)


def test_the_mean_over_domains_is_plain_and_never_made_up() -> None:
    assert mean([50.0, 0.0, 100.0]) == 50.0
    assert mean([50.0, None]) is None
    assert mean([]) is None


def test_a_continual_run_from_spec_to_file(tmp_path: Path) -> None:
    asked = spec({"kind": "continual", "corruptions": ["snow", "fog"]}, limit=10)
    path = execute.run(asked, None, tmp_path, keep_records=True)
    assert path.name.startswith("zero_shot-sample-cifar10c-sample-mnist-continual-s0-")
    result = read_result(path)
    assert result.spec == asked
    assert [(domain.name, domain.images) for domain in result.domains] == [("snow", 20), ("fog", 20)]
    import pyarrow.parquet

    table = pyarrow.parquet.read_table(tmp_path / result.records).to_pydict()
    domain, label, known, index = (np.array(table[name]) for name in ("domain", "label", "known", "index"))
    hms = []
    for number in (0, 1):
        wanted, unknown = (domain == number) & (label >= 0), (domain == number) & (label < 0)
        right, rejected = np.mean(known[wanted] & (index == label)[wanted]), np.mean(~known[unknown])
        hms.append(100 * 2 * right * rejected / (right + rejected))
        assert result.domains[number].metrics.hm == pytest.approx(hms[-1])
    assert result.hm_mean_domains == pytest.approx(sum(hms) / 2)
    written = path.stat().st_mtime_ns
    assert execute.run(asked, None, tmp_path, keep_records=True) == path
    assert path.stat().st_mtime_ns == written


def test_a_single_run_says_nothing_about_domains(tmp_path: Path) -> None:
    path = execute.run(spec(), None, tmp_path)
    assert path.name.startswith("zero_shot-sample-cifar10c-sample-mnist-s0-")
    content = json.loads(path.read_text())
    assert not {"domains", "hm_mean_domains"} & content.keys()
    assert "scenario" not in content["spec"]


# --- the command ------------------------------------------------------------------------------------------------------
SAMPLE = ["run", "--desired", "sample:cifar10c", "--undesired", "sample:mnist", "--method", "zero_shot", "--limit", "8"]


def test_the_command_takes_scenarios(tmp_path: Path) -> None:
    done = command(
        *SAMPLE, "--scenario", "frequent", "--images-per-domain", "3", "--corruptions", "snow, fog", "--ratio", "0.5",
        "--out", str(tmp_path),
    )  # fmt: skip
    assert done.returncode == 0, done.stderr
    result = read_result(Path(done.stdout.splitlines()[-1]))
    assert result.spec.scenario == read_scenario("frequent", images=3, corruptions=["snow", "fog"])
    assert f"HM of each domain, mean {result.hm_mean_domains:.2f}:" in done.stdout
    # Desired 3, 3, 2 in turn; undesired, half of those so far rounded down, 1, 2, 1: fog has the second visit.
    assert "snow (7 images)" in done.stdout
    assert "fog (5 images)" in done.stdout
    mine = tmp_path / "mine.json"
    mine.write_text(json.dumps({"kind": "domains", "domains": [{"desired": "sample:cifar10"}] * 2}))
    own = command(*SAMPLE, "--scenario", str(mine), "--out", str(tmp_path))
    assert own.returncode == 0, own.stderr
    assert "sample:cifar10 (2) (16 images)" in own.stdout


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (["--scenario", "nightly"], "There is no scenario 'nightly'"),
        (["--speed", "5"], "The scenario single takes no `speed`, which belongs to smooth."),
        (["--scenario", "frequent", "--images-per-domain", "0"], "at least 1, not 0"),
        (["--scenario", "continual", "--corruptions", "rain"], "There is no corruption 'rain'"),
    ],
)
def test_the_command_states_a_problem_in_one_sentence(arguments: list[str], words: str, tmp_path: Path) -> None:
    done = command(*SAMPLE, *arguments, "--out", str(tmp_path / "out"))
    assert (done.returncode, words in done.stderr) == (1, True), done.stderr
    assert "Traceback" not in done.stderr
    assert not (tmp_path / "out").exists()
