"""What a folder of results turns into, recorded: run keys, names, commands, tables, data, comparisons and pages.

`OSTTA_RECORD=1 pytest tests/bench/test_recorded_bench.py` writes the recording anew, after a change that is meant.
"""

from __future__ import annotations

import hashlib
import json
import os
import re
import shutil
from collections.abc import Iterator
from functools import partial
from pathlib import Path

import pytest

from helpers.paths import TESTS
from ostta.bench import load_results
from ostta.bench.compare import as_json, compare, open_sides
from ostta.bench.figures import figures_of
from ostta.bench.folder import ResultFolder
from ostta.bench.formats import FORMATS
from ostta.bench.naming import method_name, run_command, stream_name
from ostta.bench.result import read_result
from ostta.bench.run import run
from ostta.bench.spec import run_key
from ostta.pages.compare import compare_page, text
from ostta.pages.images import seen_images
from ostta.pages.pictures import save_pictures
from ostta.pages.suite import suite_report

RECORDED = TESTS / "recorded" / "bench"
EXPECTED = RECORDED / "expected"
# What differs from machine to machine and from run to run.
OF_THE_MACHINE = ("seconds", "latency_ms", "peak_memory_mb", "load", "versions", "hardware", "records")


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A copy of the results, in which the order of writing is that of the names."""
    shutil.copytree(RECORDED, tmp_path, dirs_exist_ok=True, ignore=shutil.ignore_patterns("expected"))
    for number, path in enumerate(sorted((tmp_path / "results").iterdir())):
        os.utime(path, (number, number))
    monkeypatch.chdir(tmp_path)
    return tmp_path


def outputs() -> Iterator[tuple[str, str]]:
    """File name and content of everything that is made from the results."""
    yield "runs.json", json.dumps(_runs(Path("results")), indent=1, ensure_ascii=False) + "\n"
    yield "load_results.csv", load_results("results").to_csv(index=False)
    suite = figures_of("streams.toml", Path("results"))
    whole = figures_of("results")
    for name, figures in (("suite", suite), ("folder", whole)):
        for format_, write in FORMATS.items():
            yield f"{name}-{format_}.txt", write(figures)
        yield f"{name}.html", _page(suite_report(figures, partial(seen_images, root=None)))
        paths, sentences = save_pictures(figures, Path(f"pictures-{name}"), ["svg"])
        yield f"{name}-pictures.txt", "\n".join([*(path.name for path in paths), *sentences, ""])
    pair = (_snow("zero_shot"), _snow("rosita"))
    shutil.copytree("results", "again")
    for path in Path("again").glob("tda-*s1*"):
        path.unlink()
    for name, sides in (("files", pair), ("folders", (Path("results"), Path("again")))):
        found = compare(open_sides(*sides))
        yield f"compare-{name}.txt", text(found)
        yield f"compare-{name}.json", as_json(found)
        yield f"compare-{name}.html", _page(compare_page(found, partial(seen_images, root=None)))


def test_outputs_of_a_folder_are_as_recorded(folder: Path) -> None:
    made = dict(outputs())
    if os.environ.get("OSTTA_RECORD"):
        shutil.rmtree(EXPECTED, ignore_errors=True)
        EXPECTED.mkdir(parents=True)
        for name, content in made.items():
            (EXPECTED / name).write_text(content, encoding="utf-8")
    assert sorted(made) == sorted(path.name for path in EXPECTED.iterdir())
    for name, content in made.items():
        assert content == (EXPECTED / name).read_text(encoding="utf-8"), f"{name} is not as recorded"


@pytest.mark.parametrize("method", ["zero_shot", "tda"])
def test_a_run_gives_the_recorded_file_again(method: str, folder: Path, tmp_path: Path) -> None:
    # Not the profile `field`, whose rule may change.
    paths = sorted(Path("results").glob(f"{method}-sample-cifar10c-sample-mnist-continual-s0-*.json"))
    path = next(path for path in paths if read_result(path).spec.profile == "reference")
    recorded = read_result(path)
    made = run(recorded.spec, None, tmp_path / "out")
    assert made.name == path.name
    one, other = (json.loads(each.read_text()) for each in (path, made))
    assert one["threads"] >= 1
    for content in (one, other):
        content.pop("threads")
        for name in OF_THE_MACHINE:
            content.pop(name)
    assert other == one


def _runs(folder: Path) -> dict[str, object]:
    found = {}
    for path in sorted(folder.glob("*.json")):
        result = read_result(path)
        frozen = ResultFolder(folder).frozen_for(result)
        found[path.name] = {
            "key": run_key(result.spec),
            "method": method_name(result.spec),
            "stream": stream_name(result.spec),
            "command": run_command(result.spec),
            "frozen": None if frozen is None else run_key(frozen.spec),
        }
    return found


def _snow(method: str) -> Path:
    """The file of a method's first seed on the stream under snow."""
    for path in sorted(Path("results").glob(f"{method}-sample-cifar10c-sample-mnist-s0-*.json")):
        spec = read_result(path).spec
        if spec.corruption == "snow" and spec.profile == "reference":
            return path
    raise AssertionError(method)


def _page(page: str) -> str:
    """The body of a page, with the hash of each image in its place."""
    body = page[page.index("<body>") : page.index("<script>")]
    return re.sub(
        r'src="(data:[^"]*)"', lambda found: f'src="{hashlib.sha256(found[1].encode()).hexdigest()[:12]}"', body
    )
