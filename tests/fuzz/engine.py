"""What a kind of input is, what must hold for every case of it, and how cases are run.

For every input, good or bad:
- there is no exception but `ostta.Error`, and its message is one line that is not empty;
- after an Error nothing has changed: no file, and nothing of what the kind says is held, such as an adapter's state;
- memory and time stay within bounds, and the process lives.

Cases run in children of this process, one child for many cases. The child bounds its own memory; the parent watches the
clock, and learns from the child's end which case ended it.
"""

from __future__ import annotations

import hashlib
import json
import os
import random
import select
import shutil
import signal
import sys
import tempfile
import time
import traceback
import warnings
from collections.abc import Iterable, Iterator
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from ostta import Error

# Only a case that hangs takes so long, however busy the machine is.
PATIENCE = 120.0
# A target may leave files here where it succeeds.
OUT = "out"
CASES_A_CHILD = 500


class Kind:
    """One kind of input. `__init__` creates what all cases share. It runs once, before any child process starts."""

    # How much more than at the start the process may need at any moment.
    memory = 256 * 2**20

    def mutation(self, rng: random.Random) -> bytes:
        """Return an input, usually an invalid one, that depends only on `rng`."""
        raise NotImplementedError

    def place(self, content: bytes, folder: Path) -> None:
        """Write the input where the target reads it."""
        (folder / "input").write_bytes(content)

    def target(self, folder: Path) -> None:
        """Read the input."""
        raise NotImplementedError

    def held(self) -> Any:
        """Return a value that changes if, and only if, the target changed what it must not change."""
        return None


class PromiseError(AssertionError):
    """Raised by a target or by `judge` if a promise is broken without an exception."""


@dataclass(frozen=True)
class Failure:
    """A case that broke a promise. Cases that fail at the same place in the same way have the same `cause`."""

    number: int
    cause: str
    detail: str


def content_of(kind: Kind, name: str, seed: int, number: int) -> bytes:
    """Return the input of one case, which does not depend on earlier cases."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # of libraries, about what a bad input is made of
        return kind.mutation(random.Random(f"{name} {seed} {number}"))


def judge(kind: Kind, content: bytes, folder: Path) -> tuple[str, str] | None:
    """Run one case in an empty folder. Return the cause and the details of a failure, or None."""
    kind.place(content, folder)
    files, held, peak = _files(folder), kind.held(), _peak()
    raised: BaseException | None = None
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            kind.target(folder)
    except BaseException as problem:
        raised = problem
    changed = {path for path, _ in files.items() ^ _files(folder).items()}
    if raised is None:
        changed = {path for path in changed if path.parts[0] != OUT}
    if changed:  # first of all: a file that a stranger's input wrote is worse than any exception
        return f"files changed, with {type(raised).__name__}", ", ".join(sorted(map(str, changed)))
    if raised is not None and not isinstance(raised, Error):
        return _cause(raised), "".join(traceback.format_exception(raised))
    if raised is not None:
        said = str(raised)
        if len(said.splitlines()) != 1 or not said.strip():
            return f"the message is not one line, from {_where(raised)}", said
        if kind.held() != held:
            return f"an Error changed what is held, from {_where(raised)}", said
        if _ran_out_of_memory(raised):
            return f"out of memory behind an Error, from {_where(raised)}", said
    if _peak() > max(peak, _base + kind.memory):
        return "memory beyond its bound", f"{(_peak() - _base) >> 20} MB more than at the start"
    return None


def run(
    kind: Kind, name: str, seed: int, numbers: Iterable[int], patience: float = PATIENCE
) -> Iterator[Failure | None]:
    """Run the cases `numbers` in child processes and return their outcomes in order."""
    waiting = list(numbers)
    while waiting:
        batch, waiting = waiting[:CASES_A_CHILD], waiting[CASES_A_CHILD:]
        for outcome in _in_child(kind, name, seed, batch, patience):
            yield outcome
            batch.pop(0)
        # After a case that ended its child, or left it too large, the others go on in a new one.
        waiting = batch + waiting


def _in_child(kind: Kind, name: str, seed: int, batch: list[int], patience: float) -> Iterator[Failure | None]:
    reader, writer = os.pipe()
    temporary = tempfile.mkdtemp(prefix="ostta-fuzz-")
    sys.stdout.flush()
    child = os.fork()
    if not child:
        os.close(reader)
        status = 1
        try:
            _child(kind, name, seed, batch, Path(temporary), writer)
            status = 0
        finally:
            os._exit(status)
    os.close(writer)
    left = list(batch)
    try:
        for line in _lines(reader, patience):
            told = json.loads(line)
            outcome = None if told is None else Failure(**told)
            left.pop(0)
            yield outcome
            if outcome is not None and outcome.cause.startswith("memory"):
                return
        if left:
            _, status = os.waitpid(child, 0)
            child = 0
            ended = f"signal {signal.Signals(status & 127).name}" if status & 127 else f"status {status >> 8}"
            yield Failure(left[0], f"the process ended with {ended}", "")
    except TimeoutError:
        yield Failure(left[0], "the case hangs", f"more than {patience:.0f} s")
    finally:
        os.close(reader)
        if child:
            os.kill(child, signal.SIGKILL)
            os.waitpid(child, 0)
        shutil.rmtree(temporary, ignore_errors=True)


def _child(kind: Kind, name: str, seed: int, batch: list[int], folder: Path, writer: int) -> None:
    # What a library prints about damaged files is no outcome.
    nowhere = os.open(os.devnull, os.O_WRONLY)
    os.dup2(nowhere, 1)
    os.dup2(nowhere, 2)
    bound_memory(kind.memory)
    for number in batch:
        found = judged(kind, content_of(kind, name, seed, number), folder)
        told = None if found is None else asdict(Failure(number, found[0], found[1]))
        os.write(writer, (json.dumps(told) + "\n").encode())


def judged(kind: Kind, content: bytes, folder: Path) -> tuple[str, str] | None:
    """Call `judge` in a new current folder below `folder`, so that unexpected files are found."""
    place = folder / "case"
    place.mkdir()
    before = Path.cwd()
    os.chdir(place)
    try:
        return judge(kind, content, place)
    finally:
        os.chdir(before)
        shutil.rmtree(place)


def _lines(reader: int, patience: float) -> Iterator[bytes]:
    """Yield lines as they arrive. Raise a TimeoutError if none arrives for too long."""
    rest, deadline = b"", time.monotonic() + patience
    while True:
        if not select.select([reader], [], [], max(0.0, deadline - time.monotonic()))[0]:
            raise TimeoutError
        got = os.read(reader, 1 << 16)
        if not got:
            return
        *whole, rest = (rest + got).split(b"\n")
        if whole:
            deadline = time.monotonic() + patience
        yield from whole


def _files(folder: Path) -> dict[Path, str]:
    """Return every file in `folder` with its properties, to detect changes."""
    found = {}
    for path in folder.rglob("*"):
        if path.is_symlink():
            seen = f"link to {path.readlink()}"
        else:
            seen = hashlib.md5(path.read_bytes()).hexdigest() if path.is_file() else "folder"
        found[path.relative_to(folder)] = seen
    return found


# --- memory -----------------------------------------------------------------------------------------------------------
_base = 0


def bound_memory(allowed: int) -> None:
    """Record the current memory use and limit it. `judge` checks the memory use of each case."""
    global _base
    _base = _peak()
    try:
        import resource

        with open("/proc/self/statm") as file:
            size = int(file.read().split()[0]) * resource.getpagesize()
        resource.setrlimit(resource.RLIMIT_AS, (size + 4 * allowed, resource.RLIM_INFINITY))
    except (ImportError, OSError, ValueError):
        pass  # No such bound on this system; the judgement by use stays.


def _peak() -> int:
    """Return the peak memory use of this process."""
    try:
        import resource
    except ImportError:
        return 0
    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    return peak if sys.platform == "darwin" else peak * 1024


def _ran_out_of_memory(raised: BaseException | None) -> bool:
    """Return whether an exception was caused by a lack of memory."""
    while raised is not None:
        if isinstance(raised, MemoryError) or "can't allocate memory" in str(raised):
            return True
        raised = raised.__cause__ or raised.__context__
    return False


# --- causes -----------------------------------------------------------------------------------------------------------
def _cause(raised: BaseException) -> str:
    said = str(raised).partition(":")[0] if isinstance(raised, PromiseError) else ""
    return f"{type(raised).__name__}{': ' + said if said else ''}, from {_where(raised)}"


def _where(raised: BaseException) -> str:
    """Return the innermost frame of the project in the traceback."""
    frames = traceback.extract_tb(raised.__traceback__)
    own = [frame for frame in frames if f"{os.sep}ostta{os.sep}" in frame.filename]
    frame = (own or frames)[-1]
    return f"{Path(frame.filename).name}:{frame.name}:{frame.lineno}"
