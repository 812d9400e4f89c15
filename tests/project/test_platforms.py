"""Systems that lack some modules of the standard library, as Windows does.

All of the package can be imported, and a run has its result.
"""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

from helpers.cases import backbone
from helpers.paths import ROOT
from ostta.bench import machine as load
from ostta.bench import machine as memory
from ostta.bench.folder import try_lock, wait_for_lock
from ostta.bench.result import read_result
from ostta.bench.run import run
from ostta.bench.runner import run_grid
from ostta.bench.spec import RunSpec

MISSING = ("fcntl", "resource", "pwd", "grp", "termios")
# Libraries choose their modules by the system, which here has them all: they come first, and then the modules go.
IMPORTS = f"""
import importlib, pkgutil, sys
import torch, PIL.Image, pydantic, typer, rich.progress
for name in {MISSING!r}:
    sys.modules[name] = None
import ostta
for module in pkgutil.walk_packages(ostta.__path__, "ostta."):
    importlib.import_module(module.name)
    print(module.name)
"""
SPEC = RunSpec(method="zero_shot", desired="sample:cifar10c", undesired="sample:mnist", limit=4)


@pytest.fixture
def without(monkeypatch: pytest.MonkeyPatch) -> None:
    backbone("embedded")  # for the same reason
    for name in MISSING:
        monkeypatch.setitem(sys.modules, name, None)
    for module, name in ((memory, "_STATUS"), (memory, "_CLEAR"), (load, "_TASKS")):
        monkeypatch.setattr(module, name, Path("/nowhere"))
    monkeypatch.delattr(os, "getloadavg")


def test_everything_can_be_imported() -> None:
    paths = os.pathsep.join([str(ROOT / "src"), os.environ.get("PYTHONPATH", "")])
    done = subprocess.run(
        [sys.executable, "-c", IMPORTS], capture_output=True, text=True, env={**os.environ, "PYTHONPATH": paths}
    )
    assert done.returncode == 0, done.stderr
    assert {"ostta.bench.folder", "ostta.bench.run", "ostta.cli.stream", "ostta.live.pool"} <= set(done.stdout.split())


@pytest.mark.usefixtures("without")
def test_a_run_has_its_result_without_locks_and_without_a_peak(tmp_path: Path) -> None:
    with pytest.warns(UserWarning, match="has no POSIX file locks"):
        path = run(SPEC, None, tmp_path, checkpoint_every=3)
    result = read_result(path)
    assert result.counts["desired"] == 4
    assert result.peak_memory_mb is None
    assert result.load is not None
    assert (result.load.average, result.load.waited, result.busy) == (None, None, False)
    assert not memory.reset_peak()  # so that no process is used for a second run


@pytest.mark.usefixtures("without")
def test_claims_keep_nobody_out(tmp_path: Path) -> None:
    with pytest.warns(UserWarning, match="one program at a time"):
        first = wait_for_lock(tmp_path, SPEC)
    with pytest.warns(UserWarning, match="one program at a time"):
        second = try_lock(tmp_path, SPEC)
    assert second is not None
    assert first is not None
    assert second is not None
    first.release()
    second.release()


@pytest.mark.usefixtures("without")
def test_a_grid_works_too(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    silent = tmp_path / "silent"
    silent.write_text("#!/bin/sh\nexit 3\n")
    silent.chmod(0o755)
    monkeypatch.setattr(sys, "executable", str(silent))
    with pytest.warns(UserWarning, match="one program at a time"):
        summary = run_grid([SPEC], None, tmp_path / "out")
    assert [ending.reason for ending in summary.failed] == [
        "The process of this run ended with code 3 before it had a result."
    ]
