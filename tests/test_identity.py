"""One run has one name, however it was asked for: options as text or as numbers, folders from here or from the root."""

from __future__ import annotations

import json
import shutil
from pathlib import Path

import pytest

from cases import images
from ostta.bench.engine.existing_runs import ExistingRuns
from ostta.bench.engine.grid import plan
from ostta.bench.result import read_result
from ostta.bench.run.execute import prepare, run
from ostta.bench.scenario import DomainsScenario
from ostta.bench.spec import RunSpec, run_key
from ostta.bench.suite import load_suite
from ostta.cli.parsing import parse_options
from ostta.data.names import placed

SAMPLES = {"desired": "sample:cifar10c", "undesired": "sample:mnist", "limit": 4}


@pytest.mark.parametrize(
    ("typed", "written"),
    [
        (["lr=1e-3"], {"lr": 0.001}),
        (["lr=0.0010"], {"lr": 0.001}),
        (["temperature=2"], {"temperature": 2.0}),
        (["k=3"], {"k": 3}),
        (["losses=re, d"], {"losses": ["re", "d"]}),
        (["templates=a {}, far away."], {"templates": ["a {}, far away."]}),
        (["class_scores=TRUE"], {"class_scores": True}),
        (["lr=fast"], {"lr": "fast"}),
        (["unknown=1e-3"], {"unknown": "1e-3"}),
    ],
)
def test_options_typed_and_options_in_a_suite_are_one_run(typed: list[str], written: dict) -> None:
    first, second = RunSpec(options=parse_options(typed)), RunSpec(options=written)
    assert first == second
    assert run_key(first) == run_key(second)
    # As a file has it, the value is the suite's.
    assert json.loads(first.model_dump_json())["options"] == written
    assert run_key(RunSpec.model_validate_json(first.model_dump_json())) == run_key(first)


def test_other_values_stay_other_runs() -> None:
    keys = {run_key(RunSpec(options=options)) for options in ({}, {"lr": 0.001}, {"lr": "2e-3"}, {"k": 3}, {"k": "4"})}
    assert len(keys) == 5


def test_names_of_files_that_were_in_this_form_already_stay() -> None:
    """Worked out by the version before there was one form."""

    assert run_key(RunSpec(**SAMPLES)) == "f2df44b76f10"
    assert run_key(RunSpec(**SAMPLES, options={"lr": 0.001, "k": 3, "losses": ["re", "d"]})) == "9b5f0e197b58"
    assert run_key(RunSpec(desired="folder:/data/cats", undesired="parquet:/data/x.parquet")) == "8e0b79f622f5"


def test_a_result_whose_options_were_kept_as_text_is_still_found(tmp_path: Path) -> None:
    asked = RunSpec(**SAMPLES, method="rosita", options={"lr": 0.001})
    path = run(asked, None, tmp_path)
    content = json.loads(path.read_text())
    content["spec"]["options"] = {"lr": "1e-3"}
    path.write_text(json.dumps(content))
    assert read_result(path).spec == asked
    assert ExistingRuns(tmp_path, None).has(asked)


@pytest.fixture
def here(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    for number, image in enumerate(images(8)[::2]):
        folder = tmp_path / "data" / ("cat" if number % 2 else "ship")
        folder.mkdir(parents=True, exist_ok=True)
        image.save(folder / f"{number}.png")
    (tmp_path / "below").mkdir()
    monkeypatch.chdir(tmp_path)
    return tmp_path


def test_a_folder_is_one_run_however_its_path_is_written(here: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("HOME", str(here))
    ways = [
        "folder:data",
        "folder:./data",
        "folder:data/",
        f"folder:{here}/data",
        "folder:below/../data",
        "folder:~/data",
    ]
    specs = [RunSpec(desired=way, undesired="sample:mnist", method="zero_shot", limit=2) for way in ways]
    assert {each.desired for each in specs} == {f"folder:{here}/data"}
    assert len({prepare(each, None).path(here) for each in specs}) == 1
    monkeypatch.chdir(here / "below")
    assert RunSpec(desired="folder:../data").desired == f"folder:{here}/data"


def test_domains_of_ones_own_too(here: Path) -> None:
    scenarios = [DomainsScenario(domains=[{"desired": way}]) for way in ("folderc:data", f"folderc:{here}/./data")]
    assert run_key(RunSpec(scenario=scenarios[0])) == run_key(RunSpec(scenario=scenarios[1]))


@pytest.mark.parametrize(
    "name", ["mnist", "mnistc:train", "sample:mnist", "hub:owner/name", "folder:", "nothing:x", "", ":"]
)
def test_names_without_a_path_stay(name: str) -> None:
    assert placed(name) == name


def test_a_home_that_does_not_exist_is_left_to_whoever_opens_it(here: Path) -> None:
    assert placed("folder:~nobody-of-this-name/x") == f"folder:{here}/~nobody-of-this-name/x"


SUITE = """
title = "Own folders"
what = "nothing of the paper"
labels = []
rows = ["method"]
columns = ["rate"]
metrics = ["hm"]
seeds = [0, 1, 2]
base = { desired = "folder:data", undesired = "sample:mnist" }
[axes]
method = ["zero_shot", "rosita"]
[axes.rate]
slow = { options.lr = 1e-4 }
fast = { options.lr = 1e-2 }
"""


def test_machines_agree_on_shards_wherever_their_folders_are(here: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (here / "own.toml").write_text(SUITE)
    shutil.copytree(here / "data", here / "below" / "data")
    asked = load_suite("own.toml")

    def dealt() -> list[list[tuple]]:
        shards = [plan(asked, shard=(number, 3)) for number in (1, 2, 3)]
        return [[(each.method, each.seed, *each.options.values()) for each in shard] for shard in shards]

    at_first = dealt()
    monkeypatch.chdir(here / "below")
    assert dealt() == at_first
