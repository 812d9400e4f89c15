"""List the files of ostta that a benchmark passes through, from the command of a suite to its page.

python tools/trace_run.py [--all]

The traced commands are `ostta bench run` and `ostta bench report`, on a suite of two methods and two streams. They are
run once before, so that imports do not count, and in one process, so that the runs are traced as well. Files of the
rooms `ROOMS` count, including the template of the page. The library beneath them (adapter, methods, backbones, data)
is the same for one image, which `trace_step.py` traces; `--all` lists its files too.
"""

from __future__ import annotations

import argparse
import contextlib
import os
import sys
import tempfile
import threading
from collections.abc import Iterator
from pathlib import Path
from types import FrameType
from typing import Any

from trace_step import file_of

ROOMS = ("cli", "bench", "streams", "evaluation", "pages")
SUITE = """
records = true
[base]
desired = "sample:cifar10c"
undesired = "sample:mnist"
limit = 6
[axes]
method = ["zero_shot", "rosita"]
corruption = ["snow", "fog"]
"""


def commands(out: str) -> Iterator[list[str]]:
    """Yield the arguments of the two commands."""
    yield ["bench", "run", "suite.toml", "--engine", "inside", "--out", out]
    yield ["bench", "report", "suite.toml", "--out", out]


def trace(folder: Path) -> list[str]:
    """Return the files that the commands pass through in an empty folder, in the order of their first call."""
    from ostta.cli.app import app

    found: dict[str, None] = {}

    def record(frame: FrameType, event: str, _: Any) -> None:
        if event == "call" and (file := file_of(frame)) is not None:
            found[file] = None

    with contextlib.chdir(folder), open(os.devnull, "w") as nowhere, contextlib.redirect_stdout(nowhere):
        Path("suite.toml").write_text(SUITE, encoding="utf-8")
        for arguments in commands("before"):
            app(arguments, standalone_mode=False)
        before = sys.getprofile()
        threading.setprofile(record)
        sys.setprofile(record)
        try:
            for arguments in commands("traced"):
                app(arguments, standalone_mode=False)
        finally:
            sys.setprofile(before)
            threading.setprofile(None)
    return list(found)


def of_benchmark(files: list[str]) -> list[str]:
    """Return the files of `ROOMS`."""
    return [file for file in files if file.partition("/")[0] in ROOMS]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--all", action="store_true", help="list the files of the library too")
    options = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder:
        files = trace(Path(folder))
    listed = of_benchmark(files)
    print(f"{len(listed)} files of {', '.join(ROOMS)}; {len(files)} with the library beneath them")
    print(*sorted(files if options.all else listed), sep="\n")


if __name__ == "__main__":
    main()
