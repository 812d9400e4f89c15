"""Damaged lists of class names, read from a text file, a JSON file and a text, and used for a classifier."""

from __future__ import annotations

import json
import random
from pathlib import Path

import ostta
from helpers import cases
from ostta import Error
from ostta.data.class_names import parse_classes

from .engine import Kind
from .mutate import damaged, damaged_tree, json_text

SEEDS = (
    ["cat", "dog", "ship"],
    ["maple_tree", "pickup truck", "café", "aquarium fish", "snow leopard (animal)"],
    ["猫", "собака", "🐕", "cat, the pet"],
    ["cat: a photo of a house cat; a kitten", "dog", "ship: a ship"],
)
STRANGE = (
    "<|endoftext|>", "<|startoftext|>", "cat<|endoftext|>", "\ud800", "\0", "e\u0301", "\u200b", "\u202e", "\ufeff",
    "{}", "%s", "CAT",
    "cat ", "_", "a" * 400, "word " * 100, "\n", "\u2028", ",", '"', "[", "]", "\\", "</s>", "<unk>", "!", "\ufffd",
    "𐏿", "ﬁsh", "ß", "cat: a cat",
    "cat:", ": a cat", "dog: ;", "dog:a dog", "ship: a;a", "bird: " + "a; b" * 200,
)  # fmt: skip
MOST = 30


class ClassLists(Kind):
    """Class names give a classifier or one Error."""

    def __init__(self) -> None:
        self.backbone = cases.backbone("embedded")

    def mutation(self, rng: random.Random) -> bytes:
        names = list(rng.choice(SEEDS))
        for _ in range(rng.randrange(3)):
            names.insert(rng.randrange(len(names) + 1), rng.choice(STRANGE))
        match rng.randrange(6):
            case 5:
                prompts = {name.partition(":")[0]: name.partition(":")[2].split(";") for name in names}
                content = json_text(damaged_tree(prompts, rng)).encode("utf-8", "surrogatepass")
            case 0:
                content = json_text(damaged_tree(names, rng)).encode("utf-8", "surrogatepass")
            case 1:
                content = json.dumps(names).encode()
            case 2:
                content = ",".join(names).encode("utf-8", "surrogatepass")
            case _:
                content = (
                    rng.choice("\n\n\r\t")
                    .join(names)
                    .encode(rng.choice(("utf-8", "utf-8-sig", "utf-16")), "surrogatepass")
                )
        return damaged(content, rng) if rng.random() < 0.4 else content

    def place(self, content: bytes, folder: Path) -> None:
        (folder / "names.txt").write_bytes(content)
        (folder / "names.json").write_bytes(content)

    def target(self, folder: Path) -> None:
        content = (folder / "names.txt").read_bytes()
        last: Error | None = None
        given = [folder / "names.txt", str(folder / "names.json"), content.decode("utf-8", "surrogateescape")]
        seen = []
        for source in given:
            try:
                found = parse_classes(source)
                few = list(found)[:MOST]
                classes = {name: found[name] for name in few} if isinstance(found, dict) else few
                if classes not in seen:
                    seen.append(classes)
                    ostta.load(self.backbone, classes, method="zero_shot")
            except Error as problem:
                last = problem
        if last is not None:
            raise last
