"""One run has one name, however it was asked for: options as text or as numbers, folders from here or from the root."""

from __future__ import annotations

import itertools
import json
import os
import shutil
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from PIL import Image
from typer.testing import CliRunner

from helpers.cases import images
from helpers.errors import raises
from helpers.image_sets import fill
from ostta.bench.folder import ResultFolder
from ostta.bench.naming import run_command, shown_stream, stream_name
from ostta.bench.result import read_result
from ostta.bench.run import ensure_result, prepare, run
from ostta.bench.runner import ReusableResults, Streams, plan
from ostta.bench.spec import DomainsScenario, RunSpec, ShuffledScenario, checked_spec, run_key, stream_key
from ostta.bench.stream import compose
from ostta.bench.suite import load_suite
from ostta.cli.app import app
from ostta.cli.options import parse_options
from ostta.data.by_name import open_dataset
from ostta.data.dataset import BLOCK_SIZE, BLOCKS, file_fingerprint
from ostta.data.names import placed
from ostta.pages.images import seen_images

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
    assert ReusableResults(tmp_path, None, Streams(None)).has(asked)


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


# --- the identity of a stream -----------------------------------------------------------------------------------------
FOLDER = {"desired": "folder:data", "undesired": "sample:mnist", "method": "zero_shot"}


def identity_of(**fields: object) -> str:
    return compose(RunSpec(**{**SAMPLES, **fields}), None).stream.identity


def test_corruption_severity_and_seed_belong_to_the_identity() -> None:
    variants: list[dict] = [{}, {"corruption": "fog"}, {"severity": 4}, {"seed": 1}, {"desired": "sample:cifar10"}]
    variants += [{"undesired": "sample:mnistc"}, {"undesired": "sample:mnistc", "severity": 2}]
    assert len({identity_of(**fields) for fields in variants}) == len(variants)
    assert identity_of() == identity_of(method="tda", options={"lr": 1.0})


def test_the_arrangement_belongs_to_the_identity(here: Path) -> None:
    variants: list[dict] = [
        {"arrangement": "shuffled"}, {"arrangement": "ordered"}, {"arrangement": "bursts"},
        {"arrangement": "bursts", "burst_lengths": (2, 3)},
    ]  # fmt: skip
    specs = [RunSpec(**SAMPLES, **fields) for fields in variants]
    assert (specs[0], run_key(specs[0])) == (RunSpec(**SAMPLES), run_key(RunSpec(**SAMPLES)))
    for key in (run_key, stream_key, stream_name, shown_stream, run_command):
        assert len({key(spec) for spec in specs}) == len(specs)
    assert len({identity_of(**fields) for fields in variants}) == len(variants)
    assert identity_of(**variants[0]) == identity_of()
    assert all(RunSpec.model_validate_json(spec.model_dump_json()) == spec for spec in specs)
    for refused in (
        {"arrangement": "ordered", "scenario": {"kind": "frequent"}}, {"arrangement": "sideways"},
        {"burst_lengths": (9, 3)}, {"burst_lengths": (0, 3)},
    ):  # fmt: skip
        with raises("run-invalid"):
            checked_spec(**refused)


def test_a_folder_of_ones_own_is_arranged(here: Path) -> None:
    fill(here / "own", fox=9, hen=8, cow=7)
    name = f"folder:{here / 'own'}"
    for scenario in (RunSpec().scenario, ShuffledScenario()):
        spec = RunSpec(desired=name, undesired_classes=["hen"], arrangement="ordered", scenario=scenario)
        shown = [sample.label for sample in compose(spec, None).stream]
        assert sorted(shown) == [-1] * 8 + [0] * 7 + [1] * 9
        assert len([*itertools.groupby(shown)]) == 3


def test_origin_and_condition_belong_to_the_identity() -> None:
    made, numbers = open_dataset("sample:cifar10c", limit=4), np.arange(4)
    assert made.fingerprint(numbers) == open_dataset("sample:cifar10c", limit=4).fingerprint(numbers)
    others = [
        replace(made, origin="official"),
        replace(made, condition="fog 5"),
        replace(made, labels=made.labels[::-1]),
    ]
    assert len({each.fingerprint(numbers) for each in (made, *others)}) == 4


def test_a_data_set_without_files_is_identified_by_its_pixels() -> None:
    dark, bright = (
        replace(
            open_dataset("sample:mnist", limit=40),
            layout="",
            _read=lambda i, shade=shade: Image.new("L", (2, 2), shade),
        )
        for shade in (0, 9)
    )
    assert dark.fingerprint(np.arange(40)) != bright.fingerprint(np.arange(40))


def test_a_large_file_is_read_in_blocks(tmp_path: Path) -> None:
    size = 4 * BLOCKS * BLOCK_SIZE
    first, second, third = (tmp_path / name for name in "abc")
    first.write_bytes(bytes(size))
    second.write_bytes(bytes(size))
    third.write_bytes(bytes(size - 1) + b"x")
    assert file_fingerprint(first) == file_fingerprint(second) != file_fingerprint(third)
    assert file_fingerprint(tmp_path / "absent") == "unreadable"


def test_a_frozen_result_under_fog_is_not_measured_against_under_snow(tmp_path: Path) -> None:
    run(RunSpec(**SAMPLES, method="zero_shot", corruption="fog"), None, tmp_path)
    path = run(RunSpec(**SAMPLES, method="tda"), None, tmp_path)
    assert ResultFolder(tmp_path).frozen_for(read_result(path)) is None
    run(RunSpec(**SAMPLES, method="zero_shot"), None, tmp_path)
    frozen = ResultFolder(tmp_path).frozen_for(read_result(path))
    assert frozen is not None
    assert frozen.spec.corruption == "snow"


def test_a_result_is_reused_until_an_image_is_replaced(here: Path) -> None:
    asked = RunSpec(**FOLDER)
    first = ensure_result(prepare(asked, None), here / "runs")
    again = ensure_result(prepare(asked, None), here / "runs")
    assert (first.fresh, again.fresh, again.path) == (True, False, first.path)
    assert ReusableResults(here / "runs", None, Streams(None)).has(asked)
    shutil.copy(here / "data" / "cat" / "1.png", here / "data" / "cat" / "3.png")
    assert not ReusableResults(here / "runs", None, Streams(None)).has(asked)
    with raises("stream-changed"):
        seen_images(read_result(first.path), None)
    assert ensure_result(prepare(asked, None), here / "runs").fresh


def test_a_copied_folder_keeps_its_identity_and_a_renamed_class_is_another_run(here: Path) -> None:
    asked = RunSpec(**FOLDER)
    first = ensure_result(prepare(asked, None), here / "runs")
    for path in (here / "data").rglob("*.png"):
        os.utime(path, (1, 1))
    assert not ensure_result(prepare(asked, None), here / "runs").fresh
    (here / "data" / "ship").rename(here / "data" / "truck")
    assert not ReusableResults(here / "runs", None, Streams(None)).has(asked)
    assert ensure_result(prepare(asked, None), here / "runs").fresh
    assert read_result(first.path).stream.identity is not None


def test_cached_features_of_a_replaced_image_are_not_used(here: Path) -> None:
    asked = RunSpec(**FOLDER)
    ensure_result(prepare(asked, None), here / "runs", cache_features=True)
    shutil.copy(here / "data" / "cat" / "1.png", here / "data" / "cat" / "3.png")
    cached = ensure_result(prepare(asked, None), here / "runs", cache_features=True)
    plain = ensure_result(prepare(asked, None), here / "other")
    columns = [path.path.with_suffix(".parquet") for path in (cached, plain)]
    import pyarrow.parquet

    scores = [pyarrow.parquet.read_table(path, columns=["score"]).to_pydict() for path in columns]
    assert scores[0] == scores[1]


def test_the_choice_of_fooling_images_needs_no_model_to_be_identified(tmp_path: Path, monkeypatch) -> None:
    asked = RunSpec(**SAMPLES, method="zero_shot", scenario={"kind": "fooling", "pool": 2})
    run(asked, None, tmp_path)
    existing = ReusableResults(tmp_path, None, Streams(None))
    monkeypatch.setattr("ostta.bench.stream.encode", lambda *_: pytest.fail("An image was encoded."))
    assert existing.has(asked)
    assert not existing.has(RunSpec(**SAMPLES, method="zero_shot", scenario={"kind": "fooling", "pool": 3}))


def test_a_reused_result_is_announced(tmp_path: Path) -> None:
    arguments = ["run", "--method", "zero_shot", "--limit", "4", "--out", str(tmp_path), "--desired", "sample:cifar10c"]
    first, again = (CliRunner().invoke(app, [*arguments, "--undesired", "sample:mnist"]).stdout for _ in range(2))
    assert "Result reused" not in first
    assert "Result reused" in again
    assert first.splitlines()[-1] == again.splitlines()[-1]


def test_every_field_of_a_spec_is_in_the_command_of_its_run() -> None:
    sets = {"desired": "sample:cifar10c", "undesired": "sample:mnist"}
    values: dict[str, Any] = {
        "backbone": "photos", "method": "tda", "score": "msp", "identifier": "daf", "profile": "field",
        "options": {"k": 3}, "desired": "sample:photosc", "undesired": "sample:svhn", "corruption": "fog",
        "severity": 3, "ratio": 0.5, "limit": 7, "classes": ["cat", "dog"], "seed": 4, "draw": "images",
        "undesired_classes": ["ship"], "scenario": {"kind": "ordered"}, "arrangement": "ordered",
        "burst_lengths": (3, 9), "guard": True, "device": "cuda",
        "dtype": "bfloat16", "ahead": 4,
    }  # fmt: skip
    # Only `ostta run` computes the hashes of code.
    assert set(values) == set(RunSpec.model_fields) - {"plugins"}
    usual = run_command(RunSpec(**sets))
    for name, value in values.items():
        fields = {**sets, name: value}
        if name == "undesired_classes":
            fields.pop("undesired")
        command = run_command(RunSpec(**fields))
        assert command not in (usual, None), name
