"""Some damaged inputs of every kind, and checks of the engine. `make fuzz` runs many more inputs."""

from __future__ import annotations

import os
import random
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

from helpers.paths import TESTS
from ostta import Error

from . import KINDS
from .engine import OUT, Kind, run
from .mutate import damaged, damaged_tree

# As many as fit in some seconds.
COUNTS = {"images": 200, "results": 60, "suites": 100, "checkpoints": 100, "class_lists": 60}

pytestmark = pytest.mark.skipif(not hasattr(os, "fork"), reason="cases run in forked children")


@pytest.mark.parametrize("kind", KINDS)
def test_damaged_input_is_one_sentence_and_changes_nothing(kind: str, tmp_path: Path) -> None:
    """Run in a new process: a fork of a process with several threads may wait for one of them forever."""
    if kind == "exports":
        pytest.importorskip("onnxruntime", reason='needs `pip install "ostta[onnx]"`')
        pytest.importorskip("onnx", reason='needs `pip install "ostta[onnx]"`')
    if kind == "sources":
        pytest.importorskip("av", reason='needs `pip install "ostta[video]"`')
    paths = [str(TESTS), str(TESTS.parent / "src"), os.environ.get("PYTHONPATH", "")]
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join(filter(None, paths)), "OMP_NUM_THREADS": "1"}
    command = [sys.executable, "-m", "fuzz", kind, "--count", str(COUNTS.get(kind, 150)), "--failures", str(tmp_path)]
    done = subprocess.run(command, env=environment, capture_output=True, text=True, cwd=tmp_path)
    assert done.returncode == 0, done.stdout + done.stderr


class Fake(Kind):
    """A reader of bytes with a defect for each first byte."""

    memory = 50 * 2**20

    def __init__(self) -> None:
        self.state = 0

    def mutation(self, rng: random.Random) -> bytes:
        raise NotImplementedError

    def held(self) -> int:
        return self.state

    def target(self, folder: Path) -> None:
        match (folder / "input").read_bytes():
            case b"good":
                (folder / OUT).write_text("made")
            case b"refused":
                raise Error("This is refused.")
            case b"raw":
                raise KeyError("x")
            case b"exit":
                sys.exit(0)
            case b"two lines":
                raise Error("One.\nTwo.")
            case b"empty":
                raise Error("")
            case b"state":
                self.state += 1
                raise Error("The state has changed.")
            case b"file":
                (folder / "stray").touch()
            case b"leftover":
                (folder / OUT).touch()
                raise Error("This left a file.")
            case b"input changed":
                (folder / "input").write_bytes(b"x")
            case b"memory":
                bytearray(100 * 2**20)
            case b"all memory":
                try:
                    bytearray(2**40)
                except MemoryError:
                    raise Error("This cannot be read.") from None
            case b"crash":
                os.kill(os.getpid(), signal.SIGKILL)
            case b"hang":
                time.sleep(60)


CAUSES = {
    b"good": None,
    b"refused": None,
    b"raw": "KeyError",
    b"exit": "SystemExit",
    b"two lines": "not one line",
    b"empty": "not one line",
    b"state": "changed what is held",
    b"file": "files changed",
    b"leftover": "files changed",
    b"input changed": "files changed",
    b"memory": "memory beyond its bound",
    b"all memory": "out of memory",
    b"crash": "SIGKILL",
    b"hang": "hangs",
}


def test_the_engine_sees_each_broken_promise_and_goes_on(monkeypatch: pytest.MonkeyPatch) -> None:
    contents = list(CAUSES)
    monkeypatch.setattr("fuzz.engine.content_of", lambda kind, name, seed, number: contents[number])
    outcomes = list(run(Fake(), "fake", 0, range(len(contents)), patience=2.0))
    assert len(outcomes) == len(contents)
    for number, (expected, outcome) in enumerate(zip(CAUSES.values(), outcomes, strict=True)):
        if expected is None:
            assert outcome is None, outcome
        else:
            assert outcome is not None, contents[number]
            assert outcome.number == number
            assert expected in outcome.cause


def test_damage_is_the_same_for_the_same_seed_and_most_often_damage() -> None:
    content, tree = bytes(range(200)), {"a": [1, 2, {"b": "c"}], "d": None}
    for make in (lambda rng: damaged(content, rng), lambda rng: repr(damaged_tree(tree, rng))):
        made = [make(random.Random(number)) for number in range(50)]
        assert made == [make(random.Random(number)) for number in range(50)]
        assert len(set(made)) > 30
    assert tree == {"a": [1, 2, {"b": "c"}], "d": None}
