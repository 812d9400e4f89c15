"""Run damaged inputs of all kinds, or of the kinds that are named: python -m fuzz."""

from __future__ import annotations

import argparse
import sys
import tempfile
import time
from pathlib import Path

from . import KINDS, make
from .engine import Failure, Kind, bound_memory, content_of, judged, run


def main() -> int:
    parser = argparse.ArgumentParser(prog="python -m fuzz", description=__doc__)
    parser.add_argument("kinds", nargs="*", metavar="KIND", help=f"of {', '.join(KINDS)}; all of them if none is given")
    parser.add_argument("--count", type=int, default=1000, help="cases in all, shared by the kinds")
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--first", type=int, default=0, help="number of the first case")
    parser.add_argument("--failures", type=Path, default=Path("fuzz-failures"), help="where failing inputs are kept")
    parser.add_argument("--replay", type=Path, help="run this one input, in this process, with its traceback")
    asked = parser.parse_args()
    unknown = set(asked.kinds) - set(KINDS)
    if unknown or (asked.replay and len(asked.kinds) != 1):
        parser.error(f"there is no kind {unknown.pop()}" if unknown else "--replay needs the one KIND of the input")
    import torch

    torch.set_num_threads(1)  # a child of a process with more threads than one may wait for them for ever
    if asked.replay:
        return _replay(asked.kinds[0], asked.replay)
    failed = 0
    names = asked.kinds or list(KINDS)
    for number, name in enumerate(names):
        share = asked.count // len(names) + (number < asked.count % len(names))
        failed += _run(name, asked.seed, range(asked.first, asked.first + share), asked.failures)
    return 1 if failed else 0


def _run(name: str, seed: int, numbers: range, folder: Path) -> int:
    kind = make(name)
    causes: dict[str, list[Failure]] = {}
    began, shown = time.monotonic(), 0.0
    for done, outcome in enumerate(run(kind, name, seed, numbers), 1):
        if outcome is not None:
            causes.setdefault(outcome.cause, []).append(outcome)
        if time.monotonic() - shown > 1 or done == len(numbers):
            shown = time.monotonic()
            line = f"{name}: {done} of {len(numbers)} cases, seed {seed}, {sum(map(len, causes.values()))} failed"
            end = "\n" if done == len(numbers) or not sys.stdout.isatty() else "\r"
            if end == "\r" or done == len(numbers):
                print(f"{line}, {shown - began:.0f} s", end=end, flush=True)
    for cause, failures in sorted(causes.items(), key=lambda item: -len(item[1])):
        _tell(kind, name, seed, cause, failures, folder)
    return len(causes)


def _tell(kind: Kind, name: str, seed: int, cause: str, failures: list[Failure], folder: Path) -> None:
    """Print one cause with its smallest input and the command that runs it again."""
    inputs = {each.number: content_of(kind, name, seed, each.number) for each in failures[:200]}
    smallest = min(failures[:200], key=lambda each: len(inputs[each.number]))
    folder.mkdir(parents=True, exist_ok=True)
    path = folder / f"{name}-{seed}-{smallest.number}.bin"
    path.write_bytes(inputs[smallest.number])
    detail = smallest.detail.strip().splitlines()[-1][:300] if smallest.detail.strip() else ""
    print(f"  FAILED {len(failures)} of kind {name}, seed {seed}: {cause}")
    print(f"    case {smallest.number} ({len(inputs[smallest.number])} bytes): {detail}")
    print(f"    again: PYTHONPATH=tests python -m fuzz {name} --replay {path}", flush=True)


def _replay(name: str, path: Path) -> int:
    content, kind = path.read_bytes(), make(name)
    bound_memory(kind.memory)
    with tempfile.TemporaryDirectory(prefix="ostta-fuzz-") as folder:
        found = judged(kind, content, Path(folder))
    print("All is well." if found is None else f"FAILED: {found[0]}\n{found[1]}")
    return 0 if found is None else 1


if __name__ == "__main__":
    sys.exit(main())
