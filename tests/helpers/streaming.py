"""Run `ostta stream` in this process, or in a child process that can be killed."""

from __future__ import annotations

import io
import json
import os
import signal
import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

from helpers.command import run_main


@dataclass
class Done:
    code: int
    lines: list[dict]
    told: str


def stream(*arguments: object, given: bytes = b"") -> Done:
    """Run the command in this process."""
    out, err = io.StringIO(), io.StringIO()
    code = run_main(["stream", *map(str, arguments)], out, err, given)
    return Done(code, [json.loads(line) for line in out.getvalue().splitlines()], err.getvalue())


def killed(arguments: list[object], printed: Path, prepare: Callable[[], None], after: float | None = None) -> int:
    """Run the command in a forked child process, whose output is appended to `printed`. Return its exit status.

    `prepare` may install the cause of its death; otherwise it is killed after `after` seconds. A fork imports and loads
    nothing again. The child uses one thread.
    """
    import torch

    torch.set_num_threads(1)  # a child of a process with more threads than one may wait for them for ever
    child = os.fork()
    if child == 0:
        try:
            prepare()
            with open(printed, "a", encoding="utf-8") as out:
                run_main(["stream", *map(str, arguments)], out, io.StringIO())
        finally:
            os._exit(0)
    if after is not None:
        time.sleep(after)
        os.kill(child, signal.SIGKILL)
    _, status = os.waitpid(child, 0)
    return status


def lines_of(path: Path) -> list[dict]:
    """Return the complete lines of a file. A kill may have truncated the last line."""
    whole = [line for line in path.read_text(encoding="utf-8").splitlines(keepends=True) if line.endswith("\n")]
    return [json.loads(line) for line in whole]


def contents(folder: Path) -> dict[str, bytes]:
    """Return the content of every file below a folder."""
    return {str(path.relative_to(folder)): path.read_bytes() for path in sorted(folder.rglob("*")) if path.is_file()}
