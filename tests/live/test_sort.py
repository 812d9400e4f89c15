"""`ostta sort`: a folder as a whole, its results, and what a second run does."""

from __future__ import annotations

import io
import os
from pathlib import Path

import pytest

import ostta.lookahead
import ostta.step
from helpers.cases import images
from helpers.command import run_main
from helpers.errors import raises
from helpers.streaming import contents, stream
from ostta.live.outputs import OutputFolder
from ostta.live.outputs.record import PictureRecord
from ostta.live.outputs.table import Table


@pytest.fixture
def photos(tmp_path: Path) -> Path:
    folder = tmp_path / "photos"
    folder.mkdir()
    for number, image in enumerate(images(30)):
        image.save(folder / f"{number:03}.png")
    (folder / "bad.png").write_bytes(b"nothing")
    return folder


@pytest.fixture
def encoded(monkeypatch: pytest.MonkeyPatch) -> list[int]:
    """Sizes of the batches that the image tower has encoded."""
    sizes: list[int] = []
    encode = ostta.lookahead.encode

    def counting(vision, pixels, overlay=None):
        # Positions of a batch without an image are zeros.
        sizes.append(int(pixels.flatten(1).any(1).sum()))
        return encode(vision, pixels, overlay)

    for module in (ostta.lookahead, ostta.step):
        monkeypatch.setattr(module, "encode", counting)
    return sizes


def sort(*arguments: object, classes: str = "cat,dog,ship") -> tuple[int, str]:
    out, err = io.StringIO(), io.StringIO()
    words = ["sort", *map(str, arguments), "--classes", classes, "--backbone", "embedded"]
    return run_main(words, out, err), out.getvalue() + err.getvalue()


def rows(out: Path) -> list[dict]:
    return list(Table(out / "predictions.csv").rows())


def test_a_second_run_encodes_only_what_is_new(photos: Path, tmp_path: Path, encoded: list[int]) -> None:
    out = tmp_path / "out"
    code, told = sort(photos, "--out", out)
    assert code == 0, told
    assert sum(encoded) == 31
    first = rows(out)
    assert [Path(row["image"]).name for row in first] == sorted(path.name for path in photos.iterdir())
    assert [bool(row.get("error")) for row in first] == [False] * 30 + [True]
    assert not any(row.get("undecided") for row in first)
    placed = {path.resolve().name for path in (out / "sorted").rglob("*.png")}
    assert placed == {f"{number:03}.png" for number in range(30)}
    assert {"report.html", "predictions.parquet"} <= set(os.listdir(out))

    encoded.clear()
    code, told = sort(photos, "--out", out, "--sort", "copy", classes="truck,frog")
    assert (code, encoded) == (0, []), told
    assert len(rows(out)) == 31
    assert {row.get("label") for row in rows(out)} <= {"truck", "frog", None}
    assert {path.name for path in (out / "sorted").iterdir()} <= {"truck", "frog", "unknown"}

    images(31)[30].save(photos / "new.png")
    os.utime(photos / "003.png", (1, 1))
    code, told = sort(photos, photos / "new.png", "--out", out)
    # One image of the first batch is also encoded alone, as a check of the image tower.
    assert (code, sum(encoded)) == (0, 3), told
    assert len(rows(out)) == 32
    again = {row["image"]: row.get("label") for row in rows(out)}
    encoded.clear()
    code, told = sort(photos, "--out", out)
    assert (code, encoded) == (0, [])
    assert {row["image"]: row.get("label") for row in rows(out)} == again


def test_files_of_others_are_neither_removed_nor_overwritten(photos: Path, tmp_path: Path, encoded: list[int]) -> None:
    assert sort(photos, "--out", tmp_path / "out")[0] == 0
    encoded.clear()
    changes = {
        "predictions.csv": b"row,image\n1,mine\n",
        "report.html": b"mine",
        "sorted/unknown/mine.txt": b"mine",
        "features.npz": b"mine",
    }
    for name, content in changes.items():
        out = tmp_path / name.replace("/", "-")
        assert sort(photos, "--out", out, "--sort", "copy")[0] == 0
        (out / name).parent.mkdir(exist_ok=True)
        (out / name).write_bytes(content)
        before = contents(out)
        encoded.clear()
        code, _ = sort(photos, "--out", out, classes="truck,frog")
        assert (code, contents(out), encoded) == (1, before, []), name
        (out / name).unlink()
        assert sort(photos, "--out", out, classes="truck,frog")[0] == 0
    # A file that appears during the run.
    record = PictureRecord(tmp_path / "out")
    (tmp_path / "out" / "sorted" / "mine.txt").write_bytes(b"mine")
    raises(lambda: record.add(1, tmp_path / "out" / "sorted" / "mine.txt", b"1234"))
    assert (tmp_path / "out" / "sorted" / "mine.txt").read_bytes() == b"mine"
    done = stream(photos, "--classes", "cat,dog", "--backbone", "embedded", "--out", tmp_path / "stream")
    assert "ostta sort" in done.told
    before = contents(tmp_path / "stream")
    assert sort(photos, "--out", tmp_path / "stream")[0] == 1
    assert contents(tmp_path / "stream") == before
    assert stream(photos, "--classes", "cat,dog", "--backbone", "embedded", "--out", tmp_path / "out").code == 1


def test_an_interrupted_run_is_repeated(
    photos: Path, tmp_path: Path, encoded: list[int], monkeypatch: pytest.MonkeyPatch
) -> None:
    def stopped(*_: object) -> None:
        raise KeyboardInterrupt

    for name in ("write_rows", "finish"):
        with monkeypatch.context() as patch:
            patch.setattr(OutputFolder, name, stopped)
            assert sort(photos, "--out", tmp_path / "out")[0] != 0
    encoded.clear()
    code, told = sort(photos, "--out", tmp_path / "out")
    assert (code, encoded) == (0, []), told
    assert len(rows(tmp_path / "out")) == 31


def test_its_output_is_left_out_of_the_folder(photos: Path) -> None:
    for _ in range(2):
        code, told = sort(photos, "--out", photos / "out", "--sort", "copy")
        assert (code, len(rows(photos / "out"))) == (0, 31), told


def test_only_image_files_can_be_sorted(photos: Path, tmp_path: Path) -> None:
    for source in ("features:x.npz", "lost", photos / "bad.png"):
        assert sort(source, "--out", tmp_path / "out")[0] == 1
        assert not (tmp_path / "out").exists()
