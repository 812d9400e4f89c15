"""Suite files, damaged as text and as values. They are expanded, and tables are made from them."""

from __future__ import annotations

import json
import math
import random
import tempfile
import tomllib
from pathlib import Path
from typing import Any

from ostta.bench.suite import expand, read_suite, runs

from .engine import Kind
from .hand import SUITE, read_all, results, write
from .mutate import damaged, damaged_tree, raw


class Suites(Kind):
    """A file that is not a suite is rejected before any run."""

    def __init__(self) -> None:
        self.tree = tomllib.loads(SUITE)
        with tempfile.TemporaryDirectory() as folder:
            (Path(folder) / "hand.toml").write_text(SUITE)
            self.results = results(read_suite(Path(folder) / "hand.toml", "embedded/hand"))

    def mutation(self, rng: random.Random) -> bytes:
        if rng.random() < 0.3:
            return damaged(SUITE.encode(), rng)
        text = raw(toml(damaged_tree(self.tree, rng))).encode("utf-8", "surrogatepass")
        return damaged(text, rng) if rng.random() < 0.1 else text

    def place(self, content: bytes, folder: Path) -> None:
        (folder / "hand.toml").write_bytes(content)
        write(folder / "results", self.results[:4])

    def target(self, folder: Path) -> None:
        suite = read_suite(folder / "hand.toml", "embedded/hand")
        cells = expand(suite, limit=10)
        runs(cells)
        for cell in cells:
            cell.spec  # noqa: B018 - is worked out, and checked, when first asked for
        read_all(suite, folder / "results", pages=False)


def toml(tree: Any) -> str:
    """Return `tree` as TOML, one line per key. Values that TOML cannot represent become texts."""
    if not isinstance(tree, dict):
        return _value(tree)
    return "\n".join(f"{_key(key)} = {_value(value)}" for key, value in tree.items()) + "\n"


def _value(value: Any) -> str:
    if isinstance(value, dict):
        return "{ " + ", ".join(f"{_key(key)} = {_value(each)}" for key, each in value.items()) + " }"
    if isinstance(value, list):
        return "[" + ", ".join(map(_value, value)) + "]"
    if isinstance(value, bool):
        return "true" if value else "false"
    if isinstance(value, float) and not math.isfinite(value):
        return "nan" if math.isnan(value) else "inf"
    if isinstance(value, (int, float)):
        return repr(value)
    return _key("none" if value is None else value)


def _key(text: str) -> str:
    return json.dumps(text, ensure_ascii=False)
