"""`ostta stream` for tests: in this process, or in a child that can be killed."""

from __future__ import annotations

import io
import json
import os
import signal
import sys
import time
import warnings
from collections.abc import Callable
from contextlib import redirect_stderr, redirect_stdout
from dataclasses import dataclass
from pathlib import Path

import pytest

from ostta.cli import main


@dataclass
class Done:
    code: int
    lines: list[dict]
    told: str


def stream(*arguments: object, given: bytes = b"") -> Done:
    """The command inside this process."""
    out, err = io.StringIO(), io.StringIO()
    code = run([str(argument) for argument in arguments], out, err, given)
    return Done(code, [json.loads(line) for line in out.getvalue().splitlines()], err.getvalue())


def run(arguments: list[str], out: io.TextIOBase, err: io.TextIOBase, given: bytes = b"") -> int:
    with pytest.MonkeyPatch.context() as patch, redirect_stdout(out), redirect_stderr(err):  # type: ignore[type-var]
        patch.setattr(sys, "argv", ["ostta", "stream", *arguments])
        patch.setattr(sys, "stdin", io.TextIOWrapper(io.BytesIO(given)))
        patch.setattr(warnings, "showwarning", warnings.showwarning)
        try:
            main()
        except SystemExit as stop:
            return stop.code if isinstance(stop.code, int) else 0 if stop.code is None else 1
    return 0


def killed(arguments: list[object], printed: Path, prepare: Callable[[], None], after: float | None = None) -> int:
    """The command in a child; what it prints is added to `printed`. `prepare` may plant its death; else it is killed after so many seconds.

    A child by fork: nothing is imported or loaded anew, so that many can die in a short time. Its number of threads is one.
    """
    import torch

    torch.set_num_threads(1)  # a child of a process with more threads than one may wait for them for ever
    child = os.fork()
    if child == 0:
        try:
            prepare()
            with open(printed, "a", encoding="utf-8") as out:
                run([str(argument) for argument in arguments], out, io.StringIO())
        finally:
            os._exit(0)
    if after is not None:
        time.sleep(after)
        os.kill(child, signal.SIGKILL)
    _, status = os.waitpid(child, 0)
    return status


def lines_of(path: Path) -> list[dict]:
    """What was printed to a file; a kill may have cut the last line."""
    whole = [line for line in path.read_text(encoding="utf-8").splitlines(keepends=True) if line.endswith("\n")]
    return [json.loads(line) for line in whole]


def contents(folder: Path) -> dict[str, bytes]:
    """Every file below a folder."""
    return {str(path.relative_to(folder)): path.read_bytes() for path in sorted(folder.rglob("*")) if path.is_file()}
