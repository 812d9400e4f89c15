"""Grids of runs: whatever stops a runner, and however many there are, the files are those of an undisturbed one."""

from __future__ import annotations

import contextlib
import dataclasses
import fcntl
import json
import math
import multiprocessing
import os
import random
import re
import shutil
import signal
import sys
import time
from importlib.util import find_spec
from pathlib import Path
from types import SimpleNamespace

import numpy as np
import psutil
import pyarrow.parquet
import pytest
import torch
from PIL import Image
from typer.testing import CliRunner

from helpers import worker_tasks
from helpers.cases import EARLY, backbone, usual
from helpers.errors import raises
from helpers.results import bare_records, bare_result
from ostta.bench import ray as ray_cluster
from ostta.bench import workers
from ostta.bench.checkpoint import Checkpoint, RunPosition
from ostta.bench.collected import collect_results
from ostta.bench.features import FOLDER
from ostta.bench.folder import try_lock
from ostta.bench.request import read_scenario
from ostta.bench.result import read_result
from ostta.bench.run import ensure_result, prepare, run
from ostta.bench.runner import GridProgress, Summary, plan, run_grid
from ostta.bench.spec import RunSpec, run_key
from ostta.bench.stream import compose
from ostta.bench.suite import load_suite
from ostta.bench.verify import verify
from ostta.bench.workers import Ending, Job, Outcome, attempt
from ostta.cli.app import app
from ostta.config.registry import ALL_METHODS as METHODS
from ostta.core.types import Error, Prediction, Timing, Verdict
from ostta.evaluation.loop import Records
from ostta.streams import Sample

SAMPLES = {"desired": "sample:cifar10c", "undesired": "sample:mnist"}
# The last bits of a sum depend on the number of threads, so all runs that are compared have the same.
THREADS = torch.get_num_threads()
# A fresh process for a runner, without the seconds that importing torch takes each time.
PROCESSES = multiprocessing.get_context("forkserver")
PROCESSES.set_forkserver_preload(["ostta.bench.runner", "ostta.bench.ray"])


def spec(method: str = "rosita", limit: int = 8, **fields) -> RunSpec:
    return RunSpec(method=method, limit=limit, **{**SAMPLES, **fields})


GRID = [spec("zero_shot", limit=10), spec(limit=50), spec(limit=50, seed=1)]


def content(folder: Path) -> dict[str, dict]:
    """Everything in a folder of results, but for what a run costs; a hidden file that is no lock would show up."""
    found = {}
    for path in folder.rglob("*"):
        if path.is_file() and path.parent.name != ".locks":
            found[str(path.relative_to(folder))] = (bare_result if path.suffix == ".json" else bare_records)(path)
    return found


@pytest.fixture(scope="module")
def undisturbed(tmp_path_factory) -> Path:
    """`GRID`, one run after another, in this process."""
    out = tmp_path_factory.mktemp("undisturbed")
    for each in GRID:
        run(each, None, out, keep_records=True)
    return out


# --- checkpoints ------------------------------------------------------------------------------------------------------
DOMAINS = {"desired": "sample:cifar10c", "corruption": "snow"}, {"desired": "sample:cifar10c", "corruption": "fog"}
SCENARIOS = {
    "single": {},
    "continual": {"corruptions": ["snow", "fog"]},
    "frequent": {"images": 3, "corruptions": ["snow", "fog", "jpeg"]},
    "smooth": {"speed": 2, "corruptions": ["snow", "fog", "contrast"]},
    "ordered": {},
    "domains": {"domains": DOMAINS},
}


class Cut(Exception):  # noqa: N818 - it stands for a power cut
    pass


def cut_at(image: int, seen: list[int]):
    def watch(done: int, total: int, hm: float | None) -> None:
        seen.append(done)
        if done == image:
            raise Cut

    return watch


def whole_and_cut(asked: RunSpec, kind: str, tmp_path: Path, image: int = 10) -> tuple[Path, Path, list[int]]:
    """A run without a break, and one that is cut at `image` and started again; both with all records.

    And what it did then.
    """
    whole, cut, seen = tmp_path / "whole", tmp_path / "cut", []
    ensure_result(prepare(asked, None, backbone(kind)), whole, keep_records=True)
    with pytest.raises(Cut):
        ensure_result(
            prepare(asked, None, backbone(kind)), cut, keep_records=True, checkpoint_every=4, watch=cut_at(image, [])
        )
    assert not list(cut.glob("*.json"))
    ensure_result(
        prepare(asked, None, backbone(kind)), cut, keep_records=True, checkpoint_every=4, watch=cut_at(0, seen)
    )
    return whole, cut, seen


@pytest.mark.parametrize("kind", SCENARIOS)
def test_every_scenario_goes_on_to_the_same_bits(kind: str, tmp_path: Path) -> None:
    asked = spec(scenario={"kind": kind, **SCENARIOS[kind]}, options={"features": "true", "class_scores": "true"})
    whole, cut, seen = whole_and_cut(asked, "wrapped", tmp_path)
    assert seen[0] == 9  # The last checkpoint was after eight images, and none of them is seen again.
    assert content(cut) == content(whole)
    assert not list((cut / ".checkpoints").iterdir())


@pytest.mark.parametrize("method", METHODS)
def test_every_method_goes_on_to_the_same_bits(method: str, tmp_path: Path) -> None:
    kind = usual(method)
    asked = spec(method, limit=6, backbone=kind if kind != "wrapped" else "embedded", options=EARLY.get(method, {}))
    whole, cut, seen = whole_and_cut(asked, kind, tmp_path)
    assert seen[0] == 9
    assert content(cut) == content(whole)


def test_a_result_says_how_often_what_was_trained_went_back(tmp_path: Path) -> None:
    """Also of the part before a cut: the count is part of the state."""
    asked = spec("unient", options={"reset_every": "4"})
    whole, cut, _ = whole_and_cut(asked, "wrapped", tmp_path)
    assert content(cut) == content(whole)
    results = [read_result(next(folder.glob("*.json"))) for folder in (whole, cut)]
    assert results[0].updates // 4 == results[0].resets == results[1].resets > 0
    never = read_result(ensure_result(prepare(spec("unient"), None, backbone("wrapped")), tmp_path / "never").path)
    assert never.resets == 0


def test_a_run_that_was_cut_costs_what_both_parts_cost(tmp_path: Path) -> None:
    with pytest.raises(Cut):
        ensure_result(prepare(spec(), None, backbone("wrapped")), tmp_path, checkpoint_every=4, watch=cut_at(10, []))
    (manifest,) = (tmp_path / ".checkpoints").glob("*.json")
    noted = json.loads(manifest.read_text())
    assert noted["position"] == 8
    assert {path.name for path in manifest.parent.iterdir()} == {manifest.name, noted["state"], *noted["parts"]}
    manifest.write_text(json.dumps({**noted, "seconds": 1e4, "peak_memory_mb": 1e7}))
    result = read_result(ensure_result(prepare(spec(), None, backbone("wrapped")), tmp_path, checkpoint_every=4).path)
    assert 1e4 < result.seconds < 2e4
    assert result.peak_memory_mb == 1e7


def _other_version(folder: Path, noted: dict) -> None:
    noted["identity"]["versions"]["torch"] = "0.1"


def _other_threads(folder: Path, noted: dict) -> None:
    noted["identity"]["threads"] += 1


def _no_state(folder: Path, noted: dict) -> None:
    (folder / noted["state"]).unlink()


def _half_a_part(folder: Path, noted: dict) -> None:
    part = folder / noted["parts"][0]
    part.write_bytes(part.read_bytes()[:100])


def _a_part_too_few(folder: Path, noted: dict) -> None:
    noted["parts"].pop()


def _a_state_elsewhere(folder: Path, noted: dict) -> None:
    shutil.copy(folder / noted["state"], folder.parent.parent / "elsewhere.ostta")
    noted["state"] = "../../elsewhere.ostta"


def _no_json(folder: Path, noted: dict) -> None:
    noted.clear()


@pytest.mark.parametrize(
    "spoil",
    [_other_version, _other_threads, _no_state, _half_a_part, _a_part_too_few, _a_state_elsewhere, _no_json],
    ids=lambda f: f.__name__,
)
def test_a_checkpoint_that_does_not_fit_is_as_good_as_none(spoil, tmp_path: Path) -> None:
    asked, whole, cut, seen = spec(), tmp_path / "whole", tmp_path / "cut", []
    ensure_result(prepare(asked, None, backbone("wrapped")), whole)
    with pytest.raises(Cut):
        ensure_result(prepare(asked, None, backbone("wrapped")), cut, checkpoint_every=4, watch=cut_at(10, []))
    (manifest,) = (cut / ".checkpoints").glob("*.json")
    noted = json.loads(manifest.read_text())
    spoil(manifest.parent, noted)
    manifest.write_text(json.dumps(noted))
    ensure_result(prepare(asked, None, backbone("wrapped")), cut, watch=cut_at(0, seen))
    assert seen[0] == 1
    assert content(cut) == content(whole)


def test_a_checkpoint_of_other_weights_or_of_another_spec_is_not_looked_at(tmp_path: Path) -> None:
    first = prepare(spec(), None, backbone("wrapped"))
    with pytest.raises(Cut):
        ensure_result(first, tmp_path, checkpoint_every=4, watch=cut_at(10, []))
    for other in (prepare(spec(), None, backbone("embedded")), prepare(spec(seed=1), None, backbone("wrapped"))):
        assert other.key != first.key
        seen: list[int] = []
        ensure_result(other, tmp_path, checkpoint_every=4, watch=cut_at(0, seen))
        assert seen[0] == 1
    assert len(list((tmp_path / ".checkpoints").glob("*.json"))) == 1


def in_full(predictions: list[Prediction]) -> list[str]:
    """Every field as text; the text of a prediction itself is for people and leaves most of them out."""
    return [
        repr([getattr(prediction, field.name) for field in dataclasses.fields(Prediction)])
        for prediction in predictions
    ]


def test_records_come_back_exactly(tmp_path: Path) -> None:
    records = Records()
    full = Prediction(
        "cat", 3, True, 0.1 + 0.2, 1 / 3, 0.7, None, Verdict.RELIABLE_DESIRED, True, 1e-300, None,
        ms=Timing(0.1, 1e9, 1 / 7), best="cat", class_scores={"dog": 0.1, "cat": -0.0, "ant": math.nan}, pseudo_label=2,
        diagnostics={"matches": 4}, features=(0.1, 1e-30),
    )  # fmt: skip
    failed = Prediction(None, -1, False, math.nan, None, None, None, None, False, None, "not finite")
    for number in range(3):
        records.add(Sample(None, 3, "made", number, 1), full)
        records.add(Sample(None, -1, "other", number, 0), failed)
    adapter = prepare(spec(), None, backbone("wrapped")).adapter
    checkpoint = Checkpoint(tmp_path, "key", {"a": (1, 2)})
    half = Records(
        *(getattr(records, name)[:2] for name in ("source", "number", "label", "domain", "predictions", "features"))
    )
    checkpoint.write(RunPosition(adapter, half, 1.5, 2.5))
    checkpoint.write(RunPosition(adapter, records, 3.5, 4.5))
    assert len(list((tmp_path / ".checkpoints").glob("*.parquet"))) == 2
    reached = Checkpoint(tmp_path, "key", {"a": (1, 2)}).read(adapter)
    assert (reached.seconds, reached.peak_memory_mb) == (3.5, 4.5)
    for name in ("source", "number", "label", "domain"):
        assert getattr(reached.records, name) == getattr(records, name)
    # As text: NaN is NaN, None is None, -0.0 is -0.0, and types are what they were.
    assert in_full(reached.records.predictions) == in_full(records.predictions)
    assert reached.records.features[0].dtype == np.float32
    assert repr(reached.records.features) == repr(records.features)
    assert Checkpoint(tmp_path, "key", {"a": (1, 3)}).read(adapter) is None


# --- which runs there are ---------------------------------------------------------------------------------------------
SUITE = """
title = "small"
what = "for a test"
labels = ["tab:cifar"]
metrics = ["hm"]
rows = ["method", "rate"]
limit = 4
base = { desired = "sample:cifar10c", undesired = "sample:mnist" }
[axes]
method = ["zero_shot", "rosita"]
[axes.rate]
one = { drop = ["lr"] }
two = { drop = ["lr"] }
three = { desired = "cifar10c" }
"""


@pytest.fixture
def suite(tmp_path: Path) -> str:
    path = tmp_path / "small.toml"
    path.write_text(SUITE)
    return str(path)


def test_a_plan_has_each_run_once(suite: str) -> None:
    # Six cells, but "one" and "two" are the same runs.
    specs = plan(load_suite(suite))
    assert [(each.method, each.desired) for each in specs] == [
        ("zero_shot", "sample:cifar10c"), ("zero_shot", "cifar10c"), ("rosita", "sample:cifar10c"),
        ("rosita", "cifar10c"),
    ]  # fmt: skip
    some = plan(load_suite(suite), seeds=[0, 5], limit=2, only={"method": ["rosita"], "rate": ["one"]})
    assert [(each.method, each.seed, each.limit) for each in some] == [("rosita", 0, 2), ("rosita", 5, 2)]


@pytest.mark.parametrize("name", ["embedded/table-cifar", "paper/scenarios"])
@pytest.mark.parametrize("count", [1, 2, 7, 100])
def test_shards_are_disjoint_and_complete(name: str, count: int) -> None:
    asked = load_suite(name)
    whole = [run_key(each) for each in plan(asked)]
    shards = [[run_key(each) for each in plan(asked, shard=(number, count))] for number in range(1, count + 1)]
    dealt = [key for shard in shards for key in shard]
    assert len(dealt) == len(set(dealt)) == len(whole)
    assert set(dealt) == set(whole)
    assert max(map(len, shards)) - min(map(len, shards)) <= 1
    assert all(shard == [key for key in whole if key in set(shard)] for shard in shards)


@pytest.mark.parametrize("shard", [(0, 2), (3, 2), (-1, 2), (1, 0)])
def test_a_shard_that_does_not_exist(shard: tuple[int, int], suite: str) -> None:
    with raises("option-invalid"):
        plan(load_suite(suite), shard=shard)


def test_keys_know_specs_apart() -> None:
    keys = [
        run_key(each)
        for each in (spec(), spec(seed=1), spec(options={"k": 3}), spec(scenario=read_scenario("ordered")))
    ]
    assert len(set(keys)) == 4
    assert run_key(RunSpec.model_validate_json(spec().model_dump_json())) == keys[0]


# --- locks ------------------------------------------------------------------------------------------------------------
def _hold(out: Path, ready) -> None:
    lock = try_lock(out, spec())
    ready.set()
    time.sleep(600)
    lock.release()


def test_a_claim_is_one_processs_and_dies_with_it(tmp_path: Path) -> None:
    ready = PROCESSES.Event()
    other = PROCESSES.Process(target=_hold, args=(tmp_path, ready))
    other.start()
    assert ready.wait(60)
    assert try_lock(tmp_path, spec()) is None
    with try_lock(tmp_path, spec(seed=1)) as free:
        assert free is not None
        assert try_lock(tmp_path, spec(seed=1)) is None
    other.kill()
    other.join()
    with try_lock(tmp_path, spec()) as freed:
        assert freed is not None


def test_what_another_runner_has_under_way_is_left_to_it(tmp_path: Path, monkeypatch) -> None:
    monkeypatch.setattr("ostta.bench.workers.ProcessPoolExecutor", lambda *_, **__: pytest.fail("nothing is to be run"))
    with try_lock(tmp_path, spec()):
        summary = run_grid([spec()], None, tmp_path)
    assert (summary.done, summary.skipped, summary.failed, summary.elsewhere) == (0, 0, (), (spec(),))


def test_an_ordinary_run_waits_for_whoever_has_it(tmp_path: Path, monkeypatch) -> None:
    held = try_lock(tmp_path, spec())
    blocked = fcntl.flock

    def flock(handle: int, how: int) -> None:
        if not how & fcntl.LOCK_NB:
            held.release()  # Whoever waits here would wait for ever otherwise.
        blocked(handle, how)

    monkeypatch.setattr(fcntl, "flock", flock)
    with pytest.warns(UserWarning, match="Another process"):
        made = ensure_result(prepare(spec(), None, backbone("wrapped")), tmp_path)
    assert made.fresh


# --- the grid ---------------------------------------------------------------------------------------------------------
def grid(out: Path, specs: list[RunSpec] = GRID, workers: int = 2, checkpoint_every: int = 5, **options) -> Summary:
    options = {"threads": THREADS, "keep_records": True, "checkpoint_every": checkpoint_every, **options}
    return run_grid(specs, None, out, workers=workers, **options)


@pytest.mark.slow  # processes are the point here, and each takes seconds to import torch and transformers
@pytest.mark.parametrize(("workers", "specs"), [(1, GRID[:2]), (2, GRID)], ids=["one", "two"])
def test_any_number_of_workers_gives_the_same_files(
    workers: int, specs: list[RunSpec], undisturbed: Path, tmp_path: Path, monkeypatch
) -> None:
    seen: list[tuple[int, int, float]] = []
    summary = grid(
        tmp_path,
        specs,
        workers,
        watch=lambda progress: seen.append((len(progress.active), progress.total, progress.finished)),
    )
    assert (summary.done, summary.skipped, summary.failed, summary.elsewhere) == (len(specs), 0, (), ())
    found, wanted = content(tmp_path), content(undisturbed)
    assert len(found) == 2 * len(specs)
    assert found == {name: wanted[name] for name in found}
    assert max(active for active, _, _ in seen) == workers
    assert seen[-1] == (0, len(specs), len(specs))
    # And once more: nothing is started for what is there.
    monkeypatch.setattr("ostta.bench.workers.ProcessPoolExecutor", lambda *_, **__: pytest.fail("nothing is to be run"))
    again = grid(tmp_path, specs, workers)
    assert (again.done, again.skipped) == (0, len(specs))


def test_a_result_of_other_weights_is_not_taken_for_this_one(undisturbed: Path, tmp_path: Path, monkeypatch) -> None:
    for path in undisturbed.glob("zero_shot*"):
        (tmp_path / path.name).write_bytes(path.read_bytes())
    monkeypatch.setattr("ostta.bench.workers.ProcessPoolExecutor", lambda *_, **__: pytest.fail("nothing is to be run"))
    assert run_grid(GRID[:1], None, tmp_path).skipped == 1
    assert run_grid(GRID[:1], None, tmp_path, keep_records=True).skipped == 1
    (path,) = tmp_path.glob("*.json")
    changed = json.loads(path.read_text())
    path.write_text(json.dumps({**changed, "weight_hash": "0" * 64}))
    with pytest.raises(pytest.fail.Exception):
        run_grid(GRID[:1], None, tmp_path)
    path.write_text(json.dumps({**changed, "records": None}))
    assert run_grid(GRID[:1], None, tmp_path).skipped == 1
    with pytest.raises(pytest.fail.Exception):
        run_grid(GRID[:1], None, tmp_path, keep_records=True)


def test_a_result_file_that_cannot_be_read_is_renamed_and_its_run_repeated(undisturbed: Path, tmp_path: Path) -> None:
    (path,) = undisturbed.glob("zero_shot*.json")
    half = path.read_bytes()[: path.stat().st_size // 2]
    (tmp_path / path.name).write_bytes(half)
    with pytest.warns(UserWarning, match=path.name):
        assert run_grid(GRID[:1], None, tmp_path, engine="inside").done == 1
    assert bare_result(tmp_path / path.name) == bare_result(path)
    assert (tmp_path / f"{path.name}.damaged").read_bytes() == half


@pytest.mark.slow  # as above
def test_a_run_that_fails_is_noted_and_stops_no_other(suite: str, tmp_path: Path) -> None:
    out, data = tmp_path / "out", tmp_path / "data"
    data.mkdir()
    arguments = [
        "bench",
        "run",
        suite,
        "--only",
        "method=zero_shot",
        "--out",
        str(out),
        "--data",
        str(data),
        "--workers",
        "2",
    ]
    refused = CliRunner().invoke(app, arguments)
    assert refused.exit_code == 1
    assert "1 of 2 runs cannot be carried out, so nothing was started." in refused.stderr
    assert not list(out.glob("*.json"))
    done = CliRunner().invoke(app, [*arguments, "--keep-going"])
    assert done.exit_code == 1
    assert "1 done, 0 reused, 1 failed" in done.stdout
    lines = [line for line in done.stderr.splitlines() if " failed: " in line]
    assert len(lines) == 1
    assert lines[0].startswith("zero_shot, cifar10c snow / sample:mnist, limit 4, seed 0 failed: ")
    assert "Traceback" not in done.output
    (note,) = (out / "failed").iterdir()
    noted = json.loads(note.read_text())
    assert noted["spec"]["desired"] == "cifar10c"
    assert noted["reason"] in lines[0]
    assert "cifar10" in noted["reason"]
    assert noted["traceback"] is None
    # The table of the suite says so too.
    assert [failure.reason for failure in collect_results(load_suite(suite), out).failures] == [noted["reason"]]


def test_what_nobody_foresaw_is_noted_with_its_trace(monkeypatch, tmp_path: Path) -> None:
    monkeypatch.setattr(workers, "ensure_result", lambda *_, **__: 1 / 0)
    ending = attempt(Job(spec=spec("zero_shot", limit=2), root=None, out=tmp_path))
    assert ending.state is Outcome.FAILED
    assert "ZeroDivisionError" in ending.reason
    assert "1 / 0" in ending.trace


@pytest.fixture
def pretended(monkeypatch: pytest.MonkeyPatch) -> None:
    """Worker processes whose behaviour the seed says."""
    monkeypatch.setattr(workers, "BEGIN", worker_tasks.begin)
    monkeypatch.setattr(workers, "TASK", worker_tasks.carry_out)


@pytest.mark.parametrize(("seed", "words"), [(66, "was killed"), (33, "ended with code 3")])
def test_a_process_that_dies_is_a_failure_and_the_next_start_tries_again(
    seed: int, words: str, tmp_path: Path, pretended: None
) -> None:
    summary = run_grid([spec(seed=seed)], None, tmp_path)
    assert [words in ending.reason for ending in summary.failed] == [True]
    (note,) = (tmp_path / "failed").iterdir()
    noted = json.loads(note.read_text())
    assert words in noted["reason"]
    assert noted["traceback"] == f"words of {seed}\n"
    ensure_result(prepare(spec(seed=seed), None), tmp_path)
    assert run_grid([spec(seed=seed)], None, tmp_path).skipped == 1
    assert not list((tmp_path / "failed").iterdir())


def test_a_full_disk_while_a_failure_is_noted_does_not_end_the_grid(
    tmp_path: Path, monkeypatch, pretended: None
) -> None:
    def full(path: Path, content: bytes) -> None:
        raise Error(f"{path} could not be written (No space left on device).")

    monkeypatch.setattr("ostta.bench.result.write_atomically", full)
    with pytest.warns(UserWarning, match="No space left on device") as told:
        summary = run_grid([spec(seed=33), spec(seed=66)], None, tmp_path / "out", workers=1)
    assert len(summary.failed) == len(told) == 2


def test_a_note_that_cannot_be_taken_away_does_not_end_the_grid(undisturbed: Path, tmp_path: Path) -> None:
    out = Path(shutil.copytree(undisturbed, tmp_path / "out"))
    (out / "failed" / f"{run_key(GRID[0])}.json").mkdir(parents=True)
    with pytest.warns(UserWarning, match="could not be written"):
        assert run_grid(GRID[:1], None, out).skipped == 1


def _alive(process: psutil.Process) -> bool:
    """Whether it still does anything; one that has ended may wait long for somebody to take note."""
    try:
        return process.is_running() and process.status() != psutil.STATUS_ZOMBIE
    except psutil.NoSuchProcess:
        return False


def test_ctrl_c_ends_what_was_started(tmp_path: Path, pretended: None) -> None:
    started: list[psutil.Process] = []

    def watch(progress: GridProgress) -> None:
        if len(progress.active) == 2 and (tmp_path / "log").exists() and not started:
            log = [json.loads(line) for line in (tmp_path / "log").read_text().splitlines()]
            started.extend(psutil.Process(process) for _, process, _ in log)
            os.kill(os.getpid(), signal.SIGINT)

    # A shell starts background jobs with the signal ignored, and the tests may be one.
    before = signal.signal(signal.SIGINT, signal.default_int_handler)
    try:
        with pytest.raises(KeyboardInterrupt):
            run_grid([spec(seed=50), *(spec(seed=seed) for seed in range(30))], None, tmp_path, workers=2, watch=watch)
    finally:
        signal.signal(signal.SIGINT, before)
    assert started
    assert not any(map(_alive, started))
    with try_lock(tmp_path, spec(seed=50)) as free:
        assert free is not None


def _signs(out: Path) -> set[tuple[str, int]]:
    """What can be seen of a runner's work."""
    found = set()
    for path in [*out.glob("*.json"), *out.glob(".checkpoints/*.json")]:
        with contextlib.suppress(FileNotFoundError):
            found.add((path.name, path.stat().st_mtime_ns))
    return found


@pytest.mark.slow  # two processes that import torch and transformers, and a long run in each
def test_no_process_outlives_a_runner_that_is_killed(tmp_path: Path) -> None:
    specs = [spec(limit=400, seed=seed) for seed in range(2)]
    runner = PROCESSES.Process(target=grid, args=(tmp_path, specs))
    runner.start()
    while len(list(tmp_path.glob(".checkpoints/*.json"))) < 2:
        time.sleep(0.01)
        assert runner.is_alive()
    children = psutil.Process(runner.pid).children(recursive=True)
    # The resource tracker of the pool ends by itself.
    assert len(children) in (2, 3)
    runner.kill()
    runner.join()
    until = time.monotonic() + 120
    while any(map(_alive, children)) and time.monotonic() < until:
        time.sleep(0.05)
    # An orphan would have gone on to its result in that time.
    assert not any(map(_alive, children))
    assert not list(tmp_path.glob("*.json"))


@pytest.mark.slow  # ten times the seconds in which a process imports torch and transformers
def test_killed_at_random_moments_and_started_again(undisturbed: Path, tmp_path: Path) -> None:
    out = tmp_path / "out"
    seed = int.from_bytes(os.urandom(4))
    print(f"seed {seed}")  # Shown where the test fails.
    chance = random.Random(seed)
    kills = moved = 0
    while kills < 10:
        before = _signs(out)
        workers = 2 if kills == 5 else 1
        runner = PROCESSES.Process(target=grid, args=(out, GRID, workers, 2))
        runner.start()
        if kills % 3 == 0:
            # At any moment, while processes start too.
            time.sleep(chance.uniform(0, 3))
        else:
            # In the midst of the images.
            while runner.is_alive() and _signs(out) == before:
                time.sleep(0.01)
            time.sleep(chance.uniform(0, 0.2))
        runner.kill()
        runner.join()
        if runner.exitcode == 0:
            # A machine so quick that there is nothing left to kill.
            shutil.rmtree(out)
            continue
        kills += 1
        moved += _signs(out) != before
    assert moved > 0
    summary = grid(out)
    assert (summary.failed, summary.elsewhere) == ((), ())
    assert content(out) == content(undisturbed)


def _report(out: Path, reports) -> None:
    reports.put(grid(out, workers=1))


@pytest.mark.slow  # two runners with processes of their own
def test_two_runners_share_a_folder(undisturbed: Path, tmp_path: Path) -> None:
    reports = PROCESSES.SimpleQueue()
    runners = [PROCESSES.Process(target=_report, args=(tmp_path, reports)) for _ in range(2)]
    for runner in runners:
        runner.start()
    summaries = [reports.get() for _ in runners]
    for runner in runners:
        runner.join()
    # Each run was made by one of them, and only once.
    assert sum(summary.done for summary in summaries) == 3
    assert not any(summary.failed for summary in summaries)
    assert content(tmp_path) == content(undisturbed)


@pytest.mark.slow  # a Ray cluster starts, and a process for each run
@pytest.mark.skipif(find_spec("ray") is None, reason="Ray is not installed")
def test_ray_gives_the_same_files(undisturbed: Path, tmp_path: Path) -> None:
    missing = spec("zero_shot", desired="cifar10c")
    summary = run_grid(
        [*GRID[:2], missing],
        tmp_path / "nowhere",
        tmp_path / "out",
        workers=2,
        threads=THREADS,
        engine="ray",
        keep_records=True,
    )
    assert (summary.done, len(summary.failed)) == (2, 1)
    assert summary.failed[0].trace is None
    noted = json.loads((tmp_path / "out" / "failed" / f"{run_key(missing)}.json").read_text())
    assert noted["reason"] == summary.failed[0].reason
    found, wanted = content(tmp_path / "out"), content(undisturbed)
    assert found.pop(f"failed/{run_key(missing)}.json")
    assert len(found) == 4
    assert found == {name: wanted[name] for name in found}


def test_a_ray_worker_uses_cached_features_and_sends_new_ones_back(tmp_path: Path) -> None:
    """What a task of the cluster does, without a cluster."""
    ray = SimpleNamespace(get=lambda made: made, exceptions=SimpleNamespace(RayError=RuntimeError))
    cached = []
    for method in ("zero_shot", "tda"):
        job = Job(spec=spec(method, limit=4), root=None, out=tmp_path, cache_features=True)
        ending = ray_cluster._received(ray, ray_cluster._carry_out(job.model_dump_json()), job)
        assert ending.state is Outcome.DONE
        (path,) = tmp_path.glob(f"{method}*.json")
        cached.append(read_result(path).cached_features)
    assert cached == [False, True]
    # One file for each side of the stream; the second run had nothing to add.
    assert len(list((tmp_path / FOLDER).rglob("*.npz"))) == 2


def test_ray_missing_is_a_sentence(tmp_path: Path, monkeypatch) -> None:
    monkeypatch.setitem(sys.modules, "ray", None)
    with raises("library-missing", match=r'pip install "ostta\[ray\]"'):
        run_grid([spec()], None, tmp_path, engine="ray")


def test_an_engine_or_a_number_of_workers_that_cannot_be(tmp_path: Path) -> None:
    with raises("engine-unknown", match="There is no engine 'rai'; did you mean 'ray'"):
        run_grid([], None, tmp_path, engine="rai")
    with raises("option-invalid"):
        run_grid([], None, tmp_path, workers=0)


# --- verify -----------------------------------------------------------------------------------------------------------
def test_a_true_result_is_verified(undisturbed: Path, monkeypatch) -> None:
    def here(specs: list[RunSpec], root: Path | None, out: Path, *, threads: int, **_) -> Summary:
        assert threads == THREADS  # as many as the file says
        run(specs[0], root, out)
        return Summary(1, 0, (), (), 1.0)

    monkeypatch.setattr("ostta.bench.verify.run_grid", here)
    (path,) = undisturbed.glob("zero_shot*.json")
    done = CliRunner().invoke(app, ["bench", "verify", str(path)])
    assert (done.exit_code, done.stdout) == (0, f"verified: {path}\n")


@pytest.mark.slow  # a run in a process of its own
def test_a_false_result_is_found_out(undisturbed: Path, tmp_path: Path) -> None:
    (path,) = undisturbed.glob("rosita*-s0-*.json")
    false = tmp_path / "false.json"
    told = json.loads(path.read_text())
    told["updates"] += 1
    told["metrics"]["auroc"] += 1e-12
    told["stream"]["hash"] = "f" * 64
    told["versions"]["torch"] = "0.1"
    told["seconds"] = 1.0
    false.write_text(json.dumps(told))
    done = CliRunner().invoke(app, ["bench", "verify", str(false)])
    assert done.exit_code == 1
    fields = [line.split(":")[0].strip() for line in done.stdout.splitlines() if line.startswith("  ")]
    assert sorted(fields) == ["metrics.auroc", "stream.hash", "updates", "versions.torch"]
    assert f"updates: {told['updates']} in the file, {told['updates'] - 1} now" in done.stdout
    assert "likely reason" in done.stdout


def test_verify_says_what_it_cannot_do(tmp_path: Path, undisturbed: Path, monkeypatch) -> None:
    (tmp_path / "x.json").write_text("{}")
    with raises("result-invalid"):
        verify(tmp_path / "x.json", None)
    monkeypatch.setattr(sys, "executable", "/bin/false")
    (path,) = undisturbed.glob("zero_shot*.json")
    with raises("run-failed"):
        verify(path, None)


def test_verify_opens_only_what_ships_and_what_the_caller_names(
    tmp_path: Path, undisturbed: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def carried_out(specs: list[RunSpec], *_: object, **__: object) -> None:
        raise LookupError("carried out")

    monkeypatch.setattr("ostta.bench.verify.run_grid", carried_out)
    (path,) = undisturbed.glob("zero_shot*.json")
    told, copy = json.loads(path.read_text()), tmp_path / "x.json"
    domains = [{"desired": "sample:cifar10", "undesired": "parquet:/etc/x"}]
    for change, name in (
        ({"backbone": "openai/clip-vit-base-patch16"}, "openai/clip-vit-base-patch16"),
        ({"backbone": "/etc"}, "/etc"),
        ({"backbone": "embedded+maple:/etc/x"}, "embedded+maple:/etc/x"),
        ({"desired": "folderc:/etc"}, "folderc:/etc"),
        ({"undesired": "hub:some/images"}, "hub:some/images"),
        ({"scenario": {"kind": "domains", "domains": domains}}, "parquet:/etc/x"),
    ):
        copy.write_text(json.dumps({**told, "spec": {**told["spec"], **change}}))
        with raises(
            "consent-missing", match=rf"would read '{re.escape(name)}'.* allow it with `--open {re.escape(name)}`"
        ):
            verify(copy, None)
        with pytest.raises(LookupError, match="carried out"):
            verify(copy, None, opened=[name])
        done = CliRunner().invoke(app, ["bench", "verify", str(copy), "--open", name])
        assert isinstance(done.exception, LookupError)


@pytest.mark.parametrize("name", ["../x.parquet", "/etc/x.parquet", "a\\b.parquet", "passwd", ".."])
def test_records_are_beside_their_result(name: str, tmp_path: Path, undisturbed: Path) -> None:
    (path,) = undisturbed.glob("zero_shot*.json")
    copy = tmp_path / "x.json"
    copy.write_text(json.dumps({**json.loads(path.read_text()), "records": name}))
    with raises("result-invalid"):
        read_result(copy)


# --- what is told -----------------------------------------------------------------------------------------------------
def test_time_left_by_hand() -> None:
    now = 0.0
    quick, slow = [spec("zero_shot", seed=n) for n in range(2)], [spec("tpt", seed=n) for n in range(2)]
    progress = GridProgress([*quick, *slow], workers=2, clock=lambda: now)
    assert progress.left is None
    progress.start(quick[0])
    progress.start(slow[0])
    now = 10.0
    progress.end(Ending(spec=quick[0], state=Outcome.DONE))
    # All that is known is one run of 10 s: two wait, and the one under way has had its 10 s.
    assert progress.left == pytest.approx((10 + 10 + 0) / 2)
    # The slow run starts counting at its first word, so that starting up does not count as slowness: 2 s an image.
    progress.step(slow[0], 10, 100)
    now = 30.0
    progress.step(slow[0], 20, 100)
    # Left: 80 images at 2 s here; quick again 10 s; slow again 10 s to start and 100 images at 2 s.
    assert progress.left == pytest.approx((160 + 10 + 210) / 2)
    assert progress.finished == pytest.approx(1.2)
    for each in (quick[1], slow[1]):
        progress.start(each)
        progress.end(Ending(spec=each, state=Outcome.FAILED, reason="?"))
    # One run alone takes as long as it takes, whatever the number of workers.
    assert progress.left == pytest.approx(160)
    progress.end(Ending(spec=slow[0], state=Outcome.DONE))
    assert (progress.left, progress.finished, progress.active) == (0.0, 4, {})


def remarks_about_names(**fields) -> list[str]:
    return [remark for remark in compose(spec(limit=2, **fields), None).remarks if "have names like" in remark]


def test_class_names_on_both_sides_are_told(tmp_path: Path) -> None:
    for inside in ("flat", "named/tiger_cat", "named/sofa", "airplane"):
        (tmp_path / inside).mkdir(parents=True)
        Image.new("RGB", (8, 8)).save(tmp_path / inside / "a.png")
    assert remarks_about_names() == []
    assert remarks_about_names(ratio=0.0) == []
    (remark,) = remarks_about_names(undesired="sample:cifar10")
    assert "exact airplane = airplane" in remark
    (remark,) = remarks_about_names(undesired=f"folder:{tmp_path / 'named'}")
    assert remark.endswith("similar cat ~ tiger cat.")
    # The name of a folder of loose images is not the name of a class.
    assert remarks_about_names(undesired=f"folder:{tmp_path / 'flat'}") == []
    assert remarks_about_names(undesired=f"folder:{tmp_path / 'airplane'}") == []


def test_numbers_in_the_place_of_names_are_no_names(tmp_path: Path) -> None:
    from io import BytesIO

    image = BytesIO()
    Image.new("RGB", (8, 8)).save(image, "png")
    own = tmp_path / "own.parquet"
    pyarrow.parquet.write_table(
        pyarrow.table({"image": [{"bytes": image.getvalue()}] * 10, "label": list(range(10))}), own
    )
    digits = {"desired": "sample:mnist", "backbone": "embedded"}
    assert remarks_about_names(**digits, undesired=f"parquet:{own}") == []
    assert len(remarks_about_names(**digits, undesired="sample:mnist")) == 1


def test_names_that_meet_are_printed_once_and_kept(tmp_path: Path) -> None:
    arguments = ["run", "--method", "zero_shot", "--desired", "sample:cifar10c", "--undesired", "sample:cifar10"]
    done = CliRunner().invoke(app, [*arguments, "--limit", "3", "--out", str(tmp_path)])
    assert done.exit_code == 0, done.output
    assert done.stdout.count("have names like known ones") == 1
    # Before the figures, so that a long run need not be waited for.
    assert done.stdout.index("have names like") < done.stdout.index("AUROC")
    result = read_result(Path(done.stdout.splitlines()[-1]))
    assert sum("have names like known ones" in remark for remark in result.remarks) == 1
    assert result.threads == THREADS


def test_runs_inside_one_process_are_those_of_processes_of_their_own(undisturbed: Path, tmp_path: Path) -> None:
    steps: list[float] = []
    summary = run_grid(
        GRID,
        None,
        tmp_path,
        engine="inside",
        threads=THREADS,
        keep_records=True,
        watch=lambda progress: steps.append(progress.finished),
    )
    assert (summary.done, summary.failed) == (3, ())
    assert steps[-1] == 3
    assert content(tmp_path) == content(undisturbed)
    lost = run_grid([spec(backbone="nowhere/to-be-found")], None, tmp_path, engine="inside", keep_going=True)
    assert len(lost.failed) == 1
