"""Result files and notes of failed runs, damaged as text and as values. Tables and pages read them."""

from __future__ import annotations

import json
import random
import tempfile
from pathlib import Path

from ostta import Error
from ostta.bench.result import read_result
from ostta.bench.suite import read_suite

from .engine import Kind, PromiseError
from .hand import SUITE, read_all, results, write
from .mutate import damaged, damaged_tree, json_text


class Results(Kind):
    """An unreadable file in a folder is counted, and the other files are shown."""

    def __init__(self) -> None:
        with tempfile.TemporaryDirectory() as folder:
            (Path(folder) / "hand.toml").write_text(SUITE)
            self.suite = read_suite(Path(folder) / "hand.toml", "embedded/hand")
        self.seeds = results(self.suite)

    def mutation(self, rng: random.Random) -> bytes:
        seed = rng.choice(self.seeds)
        if rng.random() < 0.15:
            seed = {"spec": seed["spec"], "reason": "It failed."}
        if rng.random() < 0.3:
            return damaged(json.dumps(seed).encode(), rng)
        return json_text(damaged_tree(seed, rng)).encode("utf-8", "surrogatepass")

    def place(self, content: bytes, folder: Path) -> None:
        write(folder / "results", self.seeds[1:4])
        (folder / "results" / "bad.json").write_bytes(content)
        (folder / "results" / "failed").mkdir()
        (folder / "results" / "failed" / "bad.json").write_bytes(content)

    def target(self, folder: Path) -> None:
        bad = folder / "results" / "bad.json"
        try:
            # The page draws pictures and takes long.
            read_all(self.suite, folder / "results", pages=bad.stat().st_size % 8 == 0)
        except Error as problem:
            raise PromiseError("one bad file ended the table of all") from problem
        read_result(bad)
