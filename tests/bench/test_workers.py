"""The processes of the local engine.

When one is used again, when it is replaced, how many threads it has, and how busy the machine was.
"""

from __future__ import annotations

import gc
import json
import os
import subprocess
import sys
import threading
import time
from pathlib import Path

import numpy as np
import pytest
import torch
from threadpoolctl import threadpool_info
from typer.testing import CliRunner

from helpers import worker_tasks
from ostta.bench import machine as load_module
from ostta.bench import runner as grid_module
from ostta.bench import workers
from ostta.bench.folder import try_lock
from ostta.bench.machine import (
    Load,
    LoadMeter,
    environment,
    limited,
    memory_now,
    peak_memory,
    reset_peak,
    threads_from_environment,
)
from ostta.bench.result import read_result
from ostta.bench.run import run
from ostta.bench.runner import MissingError, Summary, run_grid
from ostta.bench.spec import RunSpec, changed, run_key
from ostta.bench.tables import rows
from ostta.bench.workers import MOST_GROWTH, Ending, Freshness, LoadedBackbones, Outcome
from ostta.cli.app import app

SAMPLES = {"desired": "sample:cifar10c", "undesired": "sample:mnist"}


def spec(seed: int = 0, **fields) -> RunSpec:
    return RunSpec(limit=4, seed=seed, **{"method": "zero_shot", **SAMPLES, **fields})


@pytest.fixture
def pretended(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    """`run_grid` on pretended workers: what it gives, and who carried out which seed."""
    out = tmp_path / "out"
    monkeypatch.setattr(workers, "BEGIN", worker_tasks.begin)
    monkeypatch.setattr(workers, "TASK", worker_tasks.carry_out)

    def carried_out(specs: list[RunSpec], **options) -> tuple[Summary, dict[int, int]]:
        summary = run_grid(specs, None, out, **{"workers": 1, "threads": 1, **options})
        lines = [json.loads(line) for line in (out / "log").read_text().splitlines()]
        return summary, {seed: process for seed, process, _ in lines}

    return carried_out


def _runs_on(process: int) -> bool:
    return Path(f"/proc/{process}").exists()


def test_a_process_lives_on_from_run_to_run_and_ends_with_the_grid(pretended) -> None:
    steps: list[int] = []
    summary, by = pretended(
        [spec(seed) for seed in range(5)], watch=lambda progress: steps.append(len(progress.active))
    )
    assert (summary.done, summary.failed) == (5, ())
    assert len(by) == 5
    assert len(set(by.values())) == 1
    assert not any(map(_runs_on, by.values()))
    assert max(steps) == 1


def test_each_run_may_have_a_new_process(pretended) -> None:
    _, by = pretended([spec(seed) for seed in range(3)], fresh=True)
    assert len(set(by.values())) == 3
    assert not any(map(_runs_on, by.values()))


def test_a_process_that_dies_fails_its_run_alone_and_is_replaced(pretended) -> None:
    summary, by = pretended([spec(seed) for seed in (0, 66, 1)])
    assert (summary.done, len(summary.failed)) == (2, 1)
    assert summary.failed[0].spec.seed == 66
    assert "was killed" in summary.failed[0].reason
    assert summary.failed[0].trace == "words of 66\n"  # and not those of the run before
    assert by[0] == by[66] != by[1]


def test_a_process_that_is_not_fit_any_more_is_replaced(pretended) -> None:
    summary, by = pretended([spec(seed) for seed in (0, 77, 1, 2)])
    assert (summary.done, summary.failed) == (4, ())
    assert by[0] == by[77] != by[1] == by[2]


def test_a_run_with_code_of_ones_own_has_a_process_to_itself(pretended, tmp_path: Path) -> None:
    own = tmp_path / "own.py"
    own.write_text("from ostta.methods.zero_shot import ZeroShot as Mine\n")
    named = [changed(spec(seed), method=f"{own}:Mine") for seed in (1, 2)]
    summary, by = pretended([spec(0), *named, spec(3), spec(4)])
    assert (summary.done, summary.failed) == (5, ())
    assert len({by[seed] for seed in (0, 1, 2, 3)}) == 4
    assert by[3] == by[4]


def test_a_run_that_hangs_is_locked_until_it_is_ended_with_the_grid(pretended, tmp_path: Path) -> None:
    out, locked = tmp_path / "out", []

    def stop(progress) -> None:
        # The seed 50 hangs. Others end meanwhile, and each time this is told.
        if (out / "log").exists() and "[50," in (out / "log").read_text():
            locked.append(try_lock(out, spec(50)) is None)
            raise KeyboardInterrupt
        time.sleep(0.02)

    with pytest.raises(KeyboardInterrupt):
        pretended([spec(50), *(spec(seed) for seed in range(30))], workers=2, watch=stop)
    assert locked == [True]
    log = [json.loads(line) for line in (out / "log").read_text().splitlines()]
    assert not any(_runs_on(process) for _, process, _ in log)
    for each in (spec(50), spec(0)):
        with try_lock(out, each) as free:
            assert free is not None


# --- as good as a new one ---------------------------------------------------------------------------------------------
def ending(**fields) -> Ending:
    return Ending(**{"spec": spec(), "state": Outcome.DONE, **fields})


@pytest.fixture(autouse=True)
def _thawed():
    yield
    gc.unfreeze()


def test_a_process_is_used_again_only_where_nothing_was_left_behind(monkeypatch: pytest.MonkeyPatch) -> None:
    fresh = Freshness()
    assert fresh.restored(ending())
    assert fresh.restored(ending(state=Outcome.FAILED, reason="There is no such data."))
    assert not fresh.restored(ending(state=Outcome.FAILED, reason="An unexpected thing.", trace="Traceback"))
    with monkeypatch.context() as patch:
        patch.setattr(workers, "can_reset_peak", lambda: False)
        assert not fresh.restored(ending())
    for change in (
        lambda: torch.set_default_dtype(torch.float64),
        lambda: torch.set_grad_enabled(False),
        lambda: torch.use_deterministic_algorithms(True),
        lambda: torch.set_num_threads(torch.get_num_threads() + 1),
    ):
        threads = torch.get_num_threads()
        try:
            change()
            assert not fresh.restored(ending())
        finally:
            torch.set_default_dtype(torch.float32)
            torch.set_grad_enabled(True)
            torch.use_deterministic_algorithms(False)
            torch.set_num_threads(threads)
    let_go = threading.Event()
    working = threading.Thread(target=let_go.wait, args=(60,))
    working.start()
    assert not fresh.restored(ending())
    let_go.set()
    working.join()
    assert fresh.restored(ending())


def test_a_process_that_leaks_is_not_used_again() -> None:
    sizes = iter([1_000, 1_000 + MOST_GROWTH, *[2_000 + MOST_GROWTH] * 2])
    fresh = Freshness(memory=lambda: next(sizes))
    assert fresh.restored(ending())
    assert fresh.restored(ending())
    assert not fresh.restored(ending())  # also after what can be given back was
    larger = iter([1_000, 5_000 + MOST_GROWTH, 5_000 + MOST_GROWTH])
    other = Freshness(memory=lambda: next(larger))
    assert other.restored(ending())
    # A larger model is no leak.
    assert other.restored(ending(spec=spec(backbone="embedded+maple")))
    assert other.restored(ending(spec=spec(backbone="embedded+maple")))


def test_every_run_begins_with_the_same_random_numbers_and_surroundings(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    before = torch.get_rng_state()
    try:
        fresh = Freshness()
        fresh.begin()
        first = torch.rand(3)
        monkeypatch.setenv("OSTTA_LEFT", "1")
        (tmp_path / "inner").mkdir()
        os.chdir(tmp_path / "inner")
        fresh.begin()
        assert torch.equal(torch.rand(3), first)
        assert "OSTTA_LEFT" not in os.environ
        assert Path.cwd() == tmp_path
    finally:
        torch.set_rng_state(before)


def test_backbones_stay_loaded_as_many_as_may() -> None:
    loaded = LoadedBackbones(most=1)
    first = loaded.of(spec())
    assert first is not None
    assert loaded.of(spec(3)) is first
    assert loaded.of(spec(backbone="nowhere")) is None
    assert loaded.of(spec()) is not first  # room was made for the other
    assert loaded.of(spec(backbone="own.py:Tower")) is None


# --- memory -----------------------------------------------------------------------------------------------------------
def test_the_peak_of_a_run_is_not_that_of_the_run_before() -> None:
    cpu = torch.device("cpu")
    assert reset_peak()
    start = peak_memory(cpu)
    assert start == pytest.approx(memory_now() / 1e6, abs=20)
    block = np.ones(25_000_000)  # 200 MB
    high = peak_memory(cpu)
    assert high - start > 150
    del block
    assert peak_memory(cpu) == pytest.approx(high, abs=1)
    assert reset_peak()
    assert peak_memory(cpu) < high - 150


# --- threads ----------------------------------------------------------------------------------------------------------
def blas_threads() -> set[int]:
    np.ones((4, 4)) @ np.ones((4, 4))
    return {pool["num_threads"] for pool in threadpool_info() if pool["user_api"] == "blas"}


def test_a_number_of_threads_binds_numpy_too() -> None:
    before = torch.get_num_threads(), blas_threads()
    for count in (1, 2):
        with limited(count):
            assert torch.get_num_threads() == count
            assert blas_threads() <= {count}
    assert (torch.get_num_threads(), blas_threads()) == before


def test_a_process_gets_the_number_for_every_library(
    pretended, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("OPENBLAS_NUM_THREADS", "7")
    pretended([spec()], threads=2)
    assert json.loads((tmp_path / "out" / "log").read_text())[2] == "2"
    assert set(environment(3).values()) == {"3"}


@pytest.mark.parametrize(
    ("variable", "wanted"), [("1", 1), ("3", 3), (" 2,4", 2), ("", None), ("0", None), ("-1", None), ("many", None)]
)
def test_omp_num_threads_is_respected(
    variable: str, wanted: int | None, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("OMP_NUM_THREADS", variable)
    assert threads_from_environment() == wanted
    given: list[int] = []

    def endings(engine, jobs, workers, threads, step, *, fresh):  # what `run_grid` hands on
        given.append(threads)
        return iter(())

    monkeypatch.setattr(grid_module, "_endings", endings)
    monkeypatch.setattr(grid_module, "cores", lambda: 8)
    run_grid([spec()], None, tmp_path)
    run_grid([spec()], None, tmp_path, threads=5)
    assert given == [wanted or 2, 5]


# --- load -------------------------------------------------------------------------------------------------------------
def test_waiting_for_a_core_is_measured(monkeypatch: pytest.MonkeyPatch) -> None:
    times = iter([{"1": (100, 50)}, {"1": (1100, 450), "2": (600, 0)}])
    monkeypatch.setattr(load_module, "_times", lambda: next(times))
    monkeypatch.setattr(os, "getloadavg", lambda: (3.456, 0, 0))
    found = LoadMeter().read()
    assert (found.average, found.waited) == (3.46, 0.2)  # 400 of 1,000 + 600 + 400
    assert found.busy


def test_a_busy_part_makes_a_run_busy(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(load_module, "_times", dict)
    assert LoadMeter().read(Load(cores=2, average=9.0, waited=0.5)).waited == 0.5
    assert LoadMeter().read().waited is None


@pytest.mark.skipif(not Path("/proc/self/schedstat").exists(), reason="the kernel does not count")
def test_two_that_share_a_core_wait_for_each_other() -> None:
    own = os.sched_getaffinity(0)
    os.sched_setaffinity(0, {min(own)})
    other = subprocess.Popen([sys.executable, "-S", "-c", "while True: pass"])
    try:
        meter, until = LoadMeter(), time.monotonic() + 0.6
        while time.monotonic() < until:
            pass
        found = meter.read()
    finally:
        other.kill()
        other.wait()
        os.sched_setaffinity(0, own)
    assert found.waited > 0.2
    assert found.busy


def test_busy_by_the_average_where_nothing_else_is_known() -> None:
    assert Load(cores=4, average=5.5).busy
    assert not Load(cores=4, average=4.5).busy
    assert not Load(cores=4).busy
    assert not Load(cores=1, average=9.0, waited=0.05).busy


def test_a_result_says_how_busy_the_machine_was_and_its_row_marks_the_time(tmp_path: Path) -> None:
    result = read_result(run(spec(), None, tmp_path))
    assert result.load is not None
    assert result.load.cores == len(os.sched_getaffinity(0))
    quiet = result.model_copy(update={"load": Load(cores=2, average=1.0, waited=0.0)})
    busy = result.model_copy(update={"load": Load(cores=2, average=9.0, waited=0.6)})
    before = result.model_copy(update={"load": None})
    assert rows([busy])[0][1][-1].text == f"{rows([quiet])[0][1][-1].text} (busy)"
    assert busy.load.remark.startswith(
        "The machine was busy: the run waited for a core 60 % of its time, load average 9.0"
    )
    assert quiet.load.remark == ""
    assert rows([before])[0][1][-1].text == rows([quiet])[0][1][-1].text
    assert "load" not in before.model_dump(mode="json")


# --- what is missing --------------------------------------------------------------------------------------------------
LACKING = [
    spec(0),
    spec(1, desired="cifar10c"),
    spec(2, desired="cifar10c", undesired="svhn"),
    spec(3, backbone="/nowhere/model"),
    spec(4, backbone="/nowhere/model", desired="cifar100c"),
    spec(5, method="nope"),
]


def test_all_that_is_missing_is_said_before_anything_starts(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(subprocess, "Popen", lambda *_, **__: pytest.fail("nothing is to be run"))
    (tmp_path / "data").mkdir()
    with pytest.raises(MissingError) as raised:
        run_grid(LACKING, tmp_path / "data", tmp_path / "out", engine="local")
    found = {frozenset(each.runs): each.reason for each in raised.value.missing}
    keys = [run_key(each) for each in LACKING]
    assert "'cifar10'" in found[frozenset(keys[1:3])]
    assert "/nowhere/model" in found[frozenset(keys[3:5])]
    assert "'cifar100'" in found[frozenset(keys[4:5])]
    assert "'svhn'" in found[frozenset(keys[2:3])]
    assert "There is no method 'nope'" in found[frozenset(keys[5:6])]
    sentence = str(raised.value)
    assert sentence.startswith("5 of 6 runs cannot be carried out, so nothing was started. (1) ")
    assert sentence.endswith("`--keep-going` carries out the other 1.")
    assert all(each.reason in sentence for each in raised.value.missing)
    assert "\n" not in sentence
    assert not list((tmp_path / "out").glob("*"))


def test_what_can_be_run_is_where_a_person_says_so(tmp_path: Path) -> None:
    summary = run_grid(LACKING[:4], tmp_path, tmp_path / "out", engine="inside", keep_going=True)
    assert (summary.done, len(summary.failed)) == (1, 3)
    assert len(list((tmp_path / "out" / "failed").glob("*.json"))) == 3


def test_a_suite_that_lacks_data_lists_what_and_how(tmp_path: Path) -> None:
    done = CliRunner().invoke(
        app, ["bench", "run", "embedded/k", "--data", str(tmp_path), "--out", str(tmp_path / "out")]
    )
    assert done.exit_code == 1
    head, *listed, hint = done.stderr.splitlines()
    assert head == "14 of 14 runs cannot be carried out, so nothing was started."
    assert sorted(line.split(" not in ")[0] for line in listed) == [
        "  14 runs: The data set 'mnist' is",
        "  7 runs: The published files of 'cifar100c', snow, are",
        "  7 runs: The published files of 'cifar10c', snow, are",
    ]
    assert "ostta data get --for embedded/k" in hint


def test_ctrl_c_says_how_to_go_on(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def interrupted(*_: object, **__: object) -> None:
        raise KeyboardInterrupt

    monkeypatch.setattr(grid_module, "run_grid", interrupted)
    done = CliRunner().invoke(app, ["bench", "run", "embedded/k", "--out", str(tmp_path)])
    assert done.exit_code == 130
    assert f"{tmp_path}" in done.stderr
