"""Data sets by name, from tiny files made here, from the sample that ships, and from the real files where they are."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path

import numpy as np
import pytest
from PIL import Image

from helpers.errors import raises
from helpers.paths import ROOT
from helpers.pictures import encoded
from ostta.data.by_name import Dataset, dataset_names, open_dataset
from ostta.data.class_names import parse_classes
from ostta.data.corruptions import corrupt
from ostta.data.readers import parquet as parquet_module

pa = pytest.importorskip("pyarrow")
pq = pytest.importorskip("pyarrow.parquet")


@pytest.fixture(scope="session")
def data() -> Path:
    """The real data sets: OSTTA_DATA, or the folder shared/data beside the project."""
    folder = Path(os.environ.get("OSTTA_DATA") or ROOT.parent / "shared" / "data")
    if not (folder / "cifar10" / "test.parquet").is_file():
        pytest.skip("the real data sets are not on this machine (set OSTTA_DATA to their folder)")
    return folder


def picture(number: int, size: int = 32, mode: str = "RGB") -> Image.Image:
    pixels = np.random.default_rng(number).integers(0, 256, (size, size, 3), dtype=np.uint8)
    return Image.fromarray(pixels).convert(mode)


def write_parquet(
    path: Path, labels: Sequence[int | None], names: list[str] | None = None, mode: str = "RGB", group: int = 3
) -> Path:
    path.parent.mkdir(parents=True, exist_ok=True)
    images = [{"bytes": encoded(picture(i, mode=mode)), "path": None} for i in range(len(labels))]
    features = {"info": {"features": {"label": {"names": names, "_type": "ClassLabel"}}}}
    schema = pa.schema(
        [("image", pa.struct([("bytes", pa.binary()), ("path", pa.string())])), ("label", pa.int64())],
        metadata={"huggingface": json.dumps(features)} if names else None,
    )
    pq.write_table(pa.table({"image": images, "label": list(labels)}, schema=schema), path, row_group_size=group)
    return path


def same(image: Image.Image, expected: Image.Image) -> bool:
    return image.mode == "RGB" and np.array_equal(np.asarray(image), np.asarray(expected.convert("RGB")))


@pytest.fixture
def root(tmp_path: Path) -> Path:
    """A small ROOT in the layout of the real one."""
    write_parquet(tmp_path / "cifar10" / "test.parquet", [0, 1, 2, 1, 0, 2, 2])
    write_parquet(tmp_path / "mnist" / "test.parquet", [1, 0], mode="L")
    listed = {"cifar10": ["air_plane", "bird", "maple_tree"], "mnist": ["0", "1"]}
    (tmp_path / "classes.json").write_text(json.dumps(listed))
    return tmp_path


def test_a_known_set(root: Path) -> None:
    dataset = open_dataset("cifar10", root)
    assert dataset.classes == ("air plane", "bird", "maple tree")
    assert dataset.labels.tolist() == [0, 1, 2, 1, 0, 2, 2]
    assert len(dataset) == 7
    # Seven images are not the test set: whoever reads a figure is told.
    assert dataset.origin == "parquet"
    assert dataset.note == "7 images instead of the official 10,000 of the test split"
    assert dataset.layout == str(root / "cifar10" / "test.parquet")
    for i in (6, 0, 3, 5, 2):
        assert same(dataset.image(i), picture(i))
    for i in (-1, 7):
        with raises("image-not-found", match=f"no image number {i}.*0 to 6"):
            dataset.image(i)


def test_grey_becomes_rgb(root: Path) -> None:
    assert same(open_dataset("mnist", root).image(1), picture(1, mode="L"))


def test_limit_takes_the_first(root: Path) -> None:
    dataset = open_dataset("cifar10", root, limit=4)
    assert dataset.labels.tolist() == [0, 1, 2, 1]
    assert same(dataset.image(3), picture(3))
    with raises("image-not-found", match="0 to 3"):
        dataset.image(4)
    assert len(open_dataset("cifar10", root, limit=100)) == 7
    with raises("limit-invalid", match="is 0"):
        open_dataset("cifar10", root, limit=0)


def test_memory_is_bounded(root: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(parquet_module, "_CACHE_BYTES", 1)
    images = parquet_module.ParquetImages(root / "cifar10" / "test.parquet")
    for i in (0, 6, 3, 1, 5, 0):
        assert same(images.image(i), picture(i))
        assert len(images._groups) == 1


def test_root_from_the_environment(root: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("OSTTA_DATA", raising=False)
    with raises("data-folder-missing", match=r"`root`.*OSTTA_DATA"):
        open_dataset("cifar10", None)
    monkeypatch.setenv("OSTTA_DATA", str(root))
    assert len(open_dataset("cifar10", None)) == 7
    with raises("data-folder-missing"):
        open_dataset("cifar10", root / "absent")


def test_missing_files_say_where_they_belong(root: Path) -> None:
    for name, place in {"svhn": "svhn/test.parquet", "tiny_imagenet20": "tiny_imagenet20/train.parquet"}.items():
        with raises("dataset-missing", match=f"ROOT/{place}"):
            open_dataset(name, root)
    with raises("dataset-missing", match=r"ROOT/cifar100/test\.parquet"):
        open_dataset("cifar100c", root)
    with raises("dataset-unknown", match=r"no data set 'cifar'.*cifar10, .*folder:PATH"):
        open_dataset("cifar", root)


def test_class_names_of_a_known_set(root: Path) -> None:
    assert open_dataset("cifar10", root, classes=["a", "b", "c_d"]).classes == ("a", "b", "c_d")
    with raises("dataset-invalid", match="label 2, but there are 2 class names"):
        open_dataset("cifar10", root, classes=["a", "b"])
    with raises("classes-invalid"):
        open_dataset("cifar10", root, classes="abc")
    (root / "classes.json").write_text("[1, 2")
    with raises("classes-invalid", match=r"classes\.json"):
        open_dataset("cifar10", root)
    (root / "classes.json").unlink()
    assert open_dataset("cifar10", root).classes == (
        *("airplane", "automobile", "bird", "cat", "deer"),
        *("dog", "frog", "horse", "ship", "truck"),
    )
    # What the file says of itself beats the list that ships.
    write_parquet(root / "cifar10" / "test.parquet", [1, 0], names=["fire_truck", "b"])
    assert open_dataset("cifar10", root).classes == ("fire truck", "b")


def test_generated_corruptions(root: Path) -> None:
    dataset = open_dataset("cifar10c", root, corruption="gaussian_noise", severity=3, seed=4)
    assert dataset.origin == "generated"
    assert "gaussian_noise, severity 3, seed 4" in dataset.note
    assert dataset.name == "cifar10c"
    expected = corrupt(np.asarray(picture(5)), "gaussian_noise", 3, seed=4, index=5)
    assert np.array_equal(np.asarray(dataset.image(5)), expected)
    limited = open_dataset("cifar10c", root, corruption="gaussian_noise", severity=3, seed=4, limit=6)
    assert np.array_equal(np.asarray(limited.image(5)), expected)
    with raises("corruption-unknown", match=r"'hail'.*snow.*fog"):
        open_dataset("cifar10c", root, corruption="hail")
    with raises("severity-invalid", match="Severity 9"):
        open_dataset("cifar10c", root, severity=9)


def write_official(folder: Path, file: str) -> None:
    """Files of the official size; nearly all of each is a hole that takes no room on the disk."""
    folder.mkdir(exist_ok=True)
    images = np.lib.format.open_memmap(folder / file, "w+", np.uint8, (50_000, 32, 32, 3))
    for severity in range(1, 6):
        images[(severity - 1) * 10_000 + 2] = severity
    images.flush()
    np.save(folder / "labels.npy", np.tile(np.arange(10_000) % 3, 5))


def test_official_corruptions(root: Path) -> None:
    write_official(root / "CIFAR-10-C", "jpeg_compression.npy")
    for severity in (1, 4, 5):
        # The slice is of 10,000 rows whatever the limit: the published loader's trap.
        dataset = open_dataset("cifar10c", root, corruption="jpeg", severity=severity, limit=5)
        assert dataset.origin == "official"
        assert len(dataset) == 5
        assert dataset.labels.tolist() == [0, 1, 2, 0, 1]
        assert np.asarray(dataset.image(2)).max() == severity
        assert np.asarray(dataset.image(3)).max() == 0
    assert len(open_dataset("cifar10c", root, corruption="jpeg")) == 10_000
    assert open_dataset("cifar10c", root, corruption="snow").origin == "generated"
    (root / "CIFAR-10-C" / "labels.npy").unlink()
    with raises("dataset-invalid", match=r"labels\.npy"):
        open_dataset("cifar10c", root, corruption="jpeg")


def test_official_files_of_the_wrong_shape(root: Path) -> None:
    folder = root / "CIFAR-10-C"
    folder.mkdir()
    np.save(folder / "fog.npy", np.zeros((10, 32, 32, 3), np.uint8))
    np.save(folder / "labels.npy", np.zeros(10, int))
    with raises("dataset-invalid", match=r"\[50000, 32, 32, 3\]"):
        open_dataset("cifar10c", root, corruption="fog")
    (folder / "fog.npy").write_bytes(b"not an array")
    with raises("dataset-invalid"):
        open_dataset("cifar10c", root, corruption="fog")


def make_folder(root: Path) -> Path:
    number = 0
    for name, files in {"sea_cow": ["b.png", "a.PNG"], "cat": ["1.png", "notes.txt"], ".hidden": ["x.png"]}.items():
        (root / name).mkdir(parents=True)
        for file in files:
            (root / name / file).write_bytes(encoded(picture(number)))
            number += 1
    (root / "readme.md").write_text("not a class")
    return root


def test_a_folder(tmp_path: Path) -> None:
    make_folder(tmp_path / "mine")
    dataset = open_dataset(f"folder:{tmp_path / 'mine'}", None)
    assert dataset.classes == ("cat", "sea cow")
    assert dataset.labels.tolist() == [0, 1, 1]
    assert dataset.origin == "folder"
    assert [same(dataset.image(i), picture(number)) for i, number in enumerate((2, 1, 0))] == [True] * 3
    chosen = open_dataset(f"folder:{tmp_path / 'mine'}", None, classes=["sea cow", "cat"])
    assert chosen.labels.tolist() == [0, 0, 1]
    assert open_dataset(f"folder:{tmp_path / 'mine'}", None, classes=["cat"]).classes == ("cat",)


def test_folders_that_are_no_data_set(tmp_path: Path) -> None:
    with raises("file-not-found", match="no folder '"):
        open_dataset(f"folder:{tmp_path / 'absent'}", None)
    with raises("dataset-invalid"):
        open_dataset(f"folder:{tmp_path}", None)
    mine = make_folder(tmp_path / "mine")
    with raises("dataset-invalid", match=r"class 'dog': it has cat, sea cow"):
        open_dataset(f"folder:{mine}", None, classes=["dog"])
    (mine / "empty").mkdir()
    with raises("dataset-invalid", match="empty' has no images"):
        open_dataset(f"folder:{mine}", None)
    with raises("dataset-unknown", match="no data set 'folder:'"):
        open_dataset("folder:", None)


def test_a_parquet_file(tmp_path: Path) -> None:
    plain = write_parquet(tmp_path / "plain.parquet", [1, 0])
    with raises("classes-missing", match=r"class names .* unknown.*`classes`"):
        open_dataset(f"parquet:{plain}", None)
    dataset = open_dataset(f"parquet:{plain}", None, classes=["a", "b"])
    assert dataset.origin == "parquet"
    assert same(dataset.image(1), picture(1))
    named = write_parquet(tmp_path / "named.parquet", [1, 0], names=["fire_truck", "b"])
    assert open_dataset(f"parquet:{named}", None).classes == ("fire truck", "b")


def test_the_column_names_of_the_public_cifar_copies(tmp_path: Path) -> None:
    path = write_parquet(tmp_path / "mine.parquet", [1, 0], names=["apple", "baby"])
    table = pq.read_table(path)
    features = {"info": {"features": {"fine_label": {"names": ["apple", "baby"], "_type": "ClassLabel"}}}}
    table = table.rename_columns(["img", "fine_label"]).append_column("coarse_label", [[5, 5]])
    pq.write_table(table.replace_schema_metadata({"huggingface": json.dumps(features)}), path)
    dataset = open_dataset(f"parquet:{path}")
    assert dataset.labels.tolist() == [1, 0]
    assert dataset.classes == ("apple", "baby")
    assert same(dataset.image(0), picture(0))


def test_what_the_datasets_library_writes(tmp_path: Path) -> None:
    datasets = pytest.importorskip("datasets")
    features = datasets.Features({"image": datasets.Image(), "label": datasets.ClassLabel(names=["x", "y"])})
    written = datasets.Dataset.from_dict({"image": [picture(0), picture(1)], "label": [1, 0]}, features=features)
    datasets.disable_progress_bars()
    written.to_parquet(tmp_path / "theirs.parquet")
    dataset = open_dataset(f"parquet:{tmp_path / 'theirs.parquet'}", None)
    assert dataset.classes == ("x", "y")
    assert dataset.labels.tolist() == [1, 0]
    assert same(dataset.image(1), picture(1))


def test_parquet_files_that_are_no_data_set(tmp_path: Path) -> None:
    def opened(path: Path) -> Dataset:
        return open_dataset(f"parquet:{path}", None, classes=["a", "b"])

    with raises("file-not-found"):
        opened(tmp_path / "absent.parquet")
    (tmp_path / "text.parquet").write_text("hello")
    with raises("dataset-invalid"):
        opened(tmp_path / "text.parquet")
    pq.write_table(pa.table({"picture": [1], "label": [0]}), tmp_path / "other.parquet")
    with raises("dataset-invalid", match="picture, label: it needs 'image' and 'label'"):
        opened(tmp_path / "other.parquet")
    pq.write_table(pa.table({"image": [1], "label": [0]}), tmp_path / "numbers.parquet")
    with raises("dataset-invalid"):
        opened(tmp_path / "numbers.parquet")
    for name, labels, words in (
        ("high", [0, 2], "label 2, but there are 2"),
        ("hidden", [0, -1], "label -1"),
        ("holes", [0, None], "an integer label"),
        ("none", [], "at least one image"),
    ):
        with raises("dataset-invalid", match=words):
            opened(write_parquet(tmp_path / f"{name}.parquet", labels))
    images = [{"bytes": None, "path": "a.png"}, {"bytes": b"junk", "path": None}]
    pq.write_table(pa.table({"image": images, "label": [0, 1]}), tmp_path / "paths.parquet")
    with raises("dataset-invalid", match=r"Row 0 .* no image bytes"):
        opened(tmp_path / "paths.parquet").image(0)
    with raises("image-unreadable", match=r"Row 1 of '.*paths\.parquet': The given bytes"):
        opened(tmp_path / "paths.parquet").image(1)


def test_the_sample_that_ships() -> None:
    cifar, mnist = open_dataset("sample:cifar10"), open_dataset("sample:mnist")
    for dataset in (cifar, mnist):
        assert len(dataset) == 1_000
        assert len(dataset.classes) == 10
        assert dataset.origin == "embedded"
    assert [cifar.classes[label] for label in cifar.labels[:4]] == ["cat", "ship", "ship", "airplane"]
    assert mnist.labels[:5].tolist() == [7, 2, 1, 0, 4]
    assert cifar.image(999).size == (32, 32)
    assert mnist.image(999).size == (28, 28)
    corrupted = open_dataset("sample:cifar10c", limit=10)
    assert corrupted.origin == "generated"
    expected = corrupt(np.asarray(cifar.image(3)), "snow", 5, seed=0, index=3)
    assert np.array_equal(np.asarray(corrupted.image(3)), expected)
    with raises("corruption-unknown", match="'hail'"):
        open_dataset("sample:cifar10c", corruption="hail")
    folder = Path(parquet_module.__file__).parent / "sample"
    assert sum(path.stat().st_size for path in folder.glob("*.parquet")) <= 4_000_000


@pytest.mark.parametrize(
    ("name", "origin", "images", "classes", "size"),
    [
        ("cifar10", "official", 10_000, 10, 32),
        ("cifar100", "official", 10_000, 100, 32),
        ("cifar100:train", "parquet", 50_000, 100, 32),
        ("mnist", "official", 10_000, 10, 28),
        ("svhn", "parquet", 10_000, 10, 32),
        ("tiny_imagenet20", "parquet", 5_000, 20, 64),
        ("cifar10c", "generated", 10_000, 10, 32),
        ("cifar100c", "generated", 10_000, 100, 32),
        ("mnistc", "generated", 10_000, 10, 28),
        ("tiny_imagenet20c", "generated", 5_000, 20, 64),
    ],
)
def test_the_real_data_sets(data: Path, name: str, origin: str, images: int, classes: int, size: int) -> None:
    if origin == "generated" and (data / "CIFAR-10-C").exists():
        pytest.skip("the official corrupted files are here")
    dataset = open_dataset(name, data)
    assert (dataset.origin, len(dataset), len(dataset.classes)) == (origin, images, classes)
    assert not any("_" in name_of_class for name_of_class in dataset.classes)
    for i in (images - 1, 0, images // 2):
        assert dataset.image(i).mode == "RGB"
        assert dataset.image(i).size == (size, size)
    told = {"svhn": "not pixel-identical", "tiny_imagenet20": "250 training images", "cifar100:train": "as JPEG"}
    assert told.get(name, "") in dataset.note


def test_the_sample_is_the_start_of_the_real_sets(data: Path) -> None:
    for name in ("cifar10", "mnist"):
        real, sample = open_dataset(name, data, limit=1_000), open_dataset(f"sample:{name}")
        assert np.array_equal(real.labels, sample.labels)
        assert real.classes == sample.classes
        assert all(same(sample.image(i), real.image(i)) for i in (0, 1, 499, 999))


def test_every_row_has_a_sentence() -> None:
    rows = dataset_names()
    assert len({row.name for row in rows}) == len(rows)
    assert all(row.where.endswith(".") and row.where.count(". ") == 0 for row in rows)
    named = {row.name for row in rows}
    assert {
        "cifar10c",
        "imagenetc",
        "imagenetr",
        "visda",
        "domainnet_sketch",
        "ccc",
        "mnist",
        "svhn",
        "hub:OWNER/NAME",
    } <= named
    assert {row.name: row.splits[0] for row in rows if row.splits}["tiny_imagenet20"] == "train"


@pytest.mark.parametrize(
    ("name", "content", "expected"),
    [
        ("classes.txt", "# animals\ncat\n  # farm\ndog\n", ["cat", "dog"]),
        ("classes.txt", "# animals\ncat: a house cat\ndog\n", {"cat": ["a house cat"], "dog": []}),
        ("classes.csv", "name\ncat\ndog\n", ["cat", "dog"]),
        ("classes.csv", "cat\ndog\n", ["cat", "dog"]),
        ("classes.csv", 'id,Class Name\r\n0,cat\r\n1,"salt, pepper"\r\n', ["cat", "salt, pepper"]),
        ("classes.csv", "cat,dog\n", ["cat", "dog"]),
        ("classes.tsv", "label\tcount\ncat\t3\ndog\t4\n", ["cat", "dog"]),
    ],
)
def test_comments_and_headings_are_not_classes(name: str, content: str, expected: object, tmp_path: Path) -> None:
    path = tmp_path / name
    path.write_bytes(content.encode())
    assert parse_classes(path) == expected


@pytest.mark.parametrize("content", ["id,count\n0,cat\n", "name,label\n0,cat\n"])
def test_a_table_must_say_which_column_has_the_names(content: str, tmp_path: Path) -> None:
    path = tmp_path / "classes.csv"
    path.write_text(content)
    with raises("classes-invalid"):
        parse_classes(path)


def test_a_folder_is_not_a_class(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    Path("pets").mkdir()
    for folder in ("pets", "pets/", Path("pets")):
        with raises("file-not-regular"):
            parse_classes(folder)
    assert parse_classes('["pets"]') == ["pets"]


def test_parse_classes(tmp_path: Path) -> None:
    assert parse_classes(" cat, dog ,sea cow,") == ["cat", "dog", "sea cow"]
    assert parse_classes('["cat", "salt, pepper"]') == ["cat", "salt, pepper"]
    assert parse_classes(",".join(f"class number {i}" for i in range(1000)))[-1] == "class number 999"
    text = tmp_path / "names.txt"
    text.write_text("﻿cat\r\n\n salt, pepper \n", encoding="utf-8")
    assert parse_classes(text) == parse_classes(str(text)) == ["cat", "salt, pepper"]
    listed = tmp_path / "names.json"
    listed.write_text('["cat", "dog"]')
    assert parse_classes(listed) == ["cat", "dog"]
    for wrong, code in (
        ("", "classes-invalid"),
        (" , ", "classes-invalid"),
        ("cat,cat", "classes-invalid"),
        ("absent.txt", "file-not-found"),
        (tmp_path / "absent", "file-not-found"),
        ('["cat"', "classes-invalid"),
        ('[["cat"]]', "classes-invalid"),
    ):
        with raises(code):
            parse_classes(wrong)
    listed.write_text('{"cat": 1}')
    with raises("classes-invalid"):
        parse_classes(listed)
    text.write_bytes(b"\xff\xfe\x00")
    with raises("file-not-text"):
        parse_classes(text)


def test_importing_is_light() -> None:
    code = (
        "import sys, ostta.data; heavy = {'cv2', 'scipy', 'pyarrow', 'datasets', 'transformers', 'pandas', "
        "'sklearn'} & set(sys.modules); "
        "sys.exit(f'imported {heavy}' if heavy else 0)"
    )
    environment = {**os.environ, "PYTHONPATH": str(ROOT / "src")}
    done = subprocess.run([sys.executable, "-c", code], env=environment, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
