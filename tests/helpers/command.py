"""Run the commands of ostta in this process or in a new one."""

from __future__ import annotations

import io
import os
import sys
import warnings
from contextlib import redirect_stderr, redirect_stdout
from dataclasses import dataclass
from typing import TextIO

import pytest

from helpers.paths import ROOT
from ostta.cli import main


@dataclass
class Done:
    returncode: int
    stdout: str
    stderr: str


def run_main(arguments: list[str], out: TextIO, err: TextIO, given: bytes = b"") -> int:
    """Run the command in this process, because a new process would mostly import libraries. Return its exit code."""
    with pytest.MonkeyPatch.context() as patch, redirect_stdout(out), redirect_stderr(err):
        patch.setattr(sys, "argv", ["ostta", *arguments])
        patch.setattr(sys, "stdin", io.TextIOWrapper(io.BytesIO(given)))
        patch.setattr(warnings, "showwarning", warnings.showwarning)
        patch.setenv("COLUMNS", "160")
        patch.delenv("OSTTA_DATA", raising=False)
        try:
            main()
        except SystemExit as stop:
            if isinstance(stop.code, str):
                err.write(stop.code)
            return stop.code if isinstance(stop.code, int) else 0 if stop.code is None else 1
    return 0


def ostta(*arguments: str, input: str | bytes = "", stdout: TextIO | None = None) -> Done:
    out, err = io.StringIO(), io.StringIO()
    code = run_main(list(arguments), stdout or out, err, input if isinstance(input, bytes) else input.encode())
    return Done(code, out.getvalue(), err.getvalue())


def output(*arguments: str) -> tuple[int, str]:
    """Run the command, and return its exit code and everything that it prints."""
    done = ostta(*arguments)
    return done.returncode, done.stdout + done.stderr


def command(*arguments: str) -> list[str]:
    return [sys.executable, "-c", "from ostta.cli import main; main()", *arguments]


def environment() -> dict[str, str]:
    paths = [str(ROOT / "src"), os.environ.get("PYTHONPATH", "")]
    clean = {name: value for name, value in os.environ.items() if name != "OSTTA_DATA"}
    return {**clean, "PYTHONPATH": os.pathsep.join(paths), "OMP_NUM_THREADS": "1", "COLUMNS": "160"}
