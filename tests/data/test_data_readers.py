"""Every format, read from a small file made here by an independent writer."""

from __future__ import annotations

import io
import struct
import tarfile
import tracemalloc
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest
from PIL import Image

from helpers.command import output
from helpers.errors import raises
from helpers.image_sets import write_idx
from helpers.pictures import encoded
from ostta.data.by_name import Dataset, open_dataset
from ostta.data.class_names import class_list
from ostta.data.corruptions import corrupt
from ostta.data.corruptions.dataset import benchmark_size
from ostta.data.names import placed


def solid(number: int, size: int = 8) -> Image.Image:
    """A picture that says which one it is: `number` in base 256."""
    return Image.new("RGB", (size, size), (number % 256, number // 256, 7))


def number_of(image: Image.Image) -> int:
    assert image.mode == "RGB"
    red, green, _ = image.getpixel((0, 0))
    return red + 256 * green


def put(path: Path, number: int, size: int = 8) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_bytes(encoded(solid(number, size)))


def seen(dataset: Dataset) -> dict[int, int]:
    """Picture number -> label, whatever the order."""
    return {number_of(dataset.image(i)): int(dataset.labels[i]) for i in range(len(dataset))}


def kept_megabytes(work: Callable[[], object]) -> tuple[object, float]:
    """What `work` gives, and how much memory it keeps."""
    tracemalloc.start()
    try:
        made = work()
        return made, tracemalloc.get_traced_memory()[0] / 1e6
    finally:
        tracemalloc.stop()


# --- MNIST's idx files


@pytest.mark.parametrize("place", ["mnist", "mnist/raw", "MNIST/raw"])
def test_idx(tmp_path: Path, place: str) -> None:
    pixels = np.random.default_rng(0).integers(0, 256, (6, 28, 28), dtype=np.uint8)
    write_idx(tmp_path / place, "t10k", pixels, [7, 2, 1, 0, 4, 1])
    write_idx(tmp_path / place, "train", pixels[:2], [5, 0])
    dataset = open_dataset("mnist", tmp_path)
    assert dataset.labels.tolist() == [7, 2, 1, 0, 4, 1]
    assert dataset.classes == tuple("0123456789")
    assert dataset.origin == "idx"
    assert np.array_equal(np.asarray(dataset.image(4)), np.repeat(pixels[4, ..., None], 3, axis=2))
    assert open_dataset("mnist:train", tmp_path).labels.tolist() == [5, 0]


def test_idx_files_that_are_wrong(tmp_path: Path) -> None:
    pixels = np.zeros((2, 28, 28), np.uint8)
    path = write_idx(tmp_path / "mnist", "t10k", pixels, [1, 2])
    content = path.read_bytes()
    for wrong, words in (
        (content[:-1], "1583 bytes, but its header promises 1584"),
        (b"\x1f\x8b" + content[2:], "not an idx3 file of bytes: unpack it first"),
        (b"", "not an idx3 file"),
    ):
        path.write_bytes(wrong)
        with raises("dataset-invalid", match=words):
            open_dataset("mnist", tmp_path)
    write_idx(tmp_path / "mnist", "t10k", pixels, [1, 2, 3])
    with raises("dataset-invalid", match=r"2 images, but .* 3 labels"):
        open_dataset("mnist", tmp_path)
    (tmp_path / "mnist" / "t10k-labels-idx1-ubyte").unlink()
    with raises("dataset-invalid", match="put t10k-labels-idx1-ubyte in the same folder"):
        open_dataset("mnist", tmp_path)


# --- SVHN's .mat files


def write_mat(path: Path, pixels: np.ndarray, digits: list[int]) -> None:
    scipy_io = pytest.importorskip("scipy.io")
    path.parent.mkdir(parents=True, exist_ok=True)
    content = {"X": np.moveaxis(pixels, 0, 3), "y": np.array(digits, np.uint8)[:, None]}
    scipy_io.savemat(path, content, do_compression=True)


def test_mat(tmp_path: Path) -> None:
    pixels = np.random.default_rng(0).integers(0, 256, (4, 32, 32, 3), dtype=np.uint8)
    write_mat(tmp_path / "svhn" / "test_32x32.mat", pixels, [1, 10, 9, 10])
    dataset = open_dataset("svhn", tmp_path)
    # The digit 0 has the label 10 there.
    assert dataset.labels.tolist() == [1, 0, 9, 0]
    assert dataset.origin == "mat"
    for i in (3, 0, 2):
        assert np.array_equal(np.asarray(dataset.image(i)), pixels[i])
    write_mat(tmp_path / "svhn" / "train_32x32.mat", pixels[:1], [3])
    assert open_dataset("svhn:train", tmp_path).labels.tolist() == [3]


def test_mat_files_that_are_wrong(tmp_path: Path) -> None:
    scipy_io = pytest.importorskip("scipy.io")
    path = tmp_path / "svhn" / "test_32x32.mat"
    for pixels, digits, words in (
        (np.zeros((2, 28, 28, 3), np.uint8), [1, 2], r"uint8 \[28, 28, 3, 2\]"),
        (np.zeros((2, 32, 32, 3), np.uint8), [0, 2], "from 1 to 10"),
        (np.zeros((2, 32, 32, 3), np.uint8), [1, 2, 3], "for each of the 2 images"),
    ):
        write_mat(path, pixels, digits)
        with raises("dataset-invalid", match=words):
            open_dataset("svhn", tmp_path)
    scipy_io.savemat(path, {"Z": np.zeros(3)})
    with raises("dataset-invalid"):
        open_dataset("svhn", tmp_path)
    path.write_bytes(b"hello")
    with raises("dataset-invalid"):
        open_dataset("svhn", tmp_path)


def test_whole_sets_are_not_kept_in_memory(tmp_path: Path) -> None:
    count = 2_000
    write_mat(tmp_path / "svhn" / "test_32x32.mat", np.zeros((count, 32, 32, 3), np.uint8), [1] * count)
    write_idx(tmp_path / "mnist", "t10k", np.zeros((count, 28, 28), np.uint8), [1] * count)
    write_shard(tmp_path / "CCC" / SEQUENCE / "serial_00000.tar", range(count))
    for name in ("svhn", "mnist", "ccc"):
        open_dataset(name, tmp_path)  # The libraries it needs are loaded now.
        dataset, kept = kept_megabytes(lambda name=name: open_dataset(name, tmp_path))
        assert isinstance(dataset, Dataset)
        assert len(dataset) == count
        # Their pixels are 6.1 and 1.6 megabytes, and the shard has 6.1.
        assert kept < 0.4, name


# --- folders by class: ImageNet-R, ImageNet-C, Tiny-ImageNet, one's own


def test_imagenet_r(tmp_path: Path) -> None:
    wnids = class_list("imagenet_r").folders
    for label, wnid in enumerate(wnids):
        put(tmp_path / "imagenet-r" / wnid / "art_0.jpg", label)
    put(tmp_path / "imagenet-r" / wnids[3] / "._art_0.jpg", 999)
    (tmp_path / "imagenet-r" / "README.txt").write_text("hello")
    dataset = open_dataset("imagenetr", tmp_path)
    assert seen(dataset) == {label: label for label in range(200)}
    assert dataset.classes[:3] == ("goldfish", "great white shark", "hammerhead shark")
    assert dataset.note == "200 images instead of the official 30,000 of the test split"
    # A limit is a fair sample, not the first classes; and it is the start of the whole.
    limited = open_dataset("imagenetr", tmp_path, limit=20)
    assert limited.labels.tolist() == dataset.labels[:20].tolist()
    assert max(limited.labels) > 100
    assert number_of(limited.image(7)) == limited.labels[7]
    assert limited.files[7].parent.name == wnids[limited.labels[7]]
    (tmp_path / "imagenet-r" / wnids[5] / "art_0.jpg").rename(tmp_path / "imagenet-r" / wnids[5] / "art.txt")
    with raises("dataset-invalid", match=f"{wnids[5]}' has no images"):
        open_dataset("imagenetr", tmp_path)
    (tmp_path / "imagenet-r" / wnids[5]).rename(tmp_path / "elsewhere")
    with raises("dataset-invalid", match=f"199 of the 200 class folders: the first missing folder is {wnids[5]}"):
        open_dataset("imagenetr", tmp_path)


def test_imagenet_c(tmp_path: Path) -> None:
    names, wnids = class_list("imagenet")
    assert (len(names), len(set(names)), list(wnids)) == (1000, 1000, sorted(wnids))
    for corruption, severity, offset in (("snow", 5, 0), ("snow", 4, 1), ("jpeg_compression", 5, 2)):
        for label, wnid in enumerate(wnids):
            image = tmp_path / "ImageNet-C" / corruption / str(severity) / wnid / "ILSVRC2012_val_1.JPEG"
            put(image, label + 2000 * offset)
    snow = open_dataset("imagenetc", tmp_path)
    assert seen(snow) == {label: label for label in range(1000)}
    assert snow.classes[0] == "tench"
    assert "ImageNet-C files: snow, severity 5, 1,000 images instead of the official 50,000" in snow.note
    mild = open_dataset("imagenetc", tmp_path, severity=4, limit=3)
    assert [number_of(mild.image(i)) for i in range(3)] == [2000 + label for label in mild.labels]
    # The same image number is the same photo under every corruption.
    jpeg = open_dataset("imagenetc", tmp_path, corruption="jpeg")
    assert number_of(jpeg.image(11)) - 4000 == number_of(snow.image(11))
    with raises("dataset-missing", match=r"'imagenet' is not in .*ROOT/imagenet/val.*licence you must accept"):
        open_dataset("imagenetc", tmp_path, corruption="fog")
    with raises("severity-invalid", match="Severity 6"):
        open_dataset("imagenetc", tmp_path, severity=6)


def test_folders_of_wordnet_ids_get_names(tmp_path: Path) -> None:
    put(tmp_path / "mine" / "n01440764" / "a.JPEG", 1)
    put(tmp_path / "mine" / "n03773504" / "a.JPEG", 2)
    dataset = open_dataset(f"folder:{tmp_path / 'mine'}")
    assert dataset.classes == ("tench", "missile")
    assert open_dataset(f"folder:{tmp_path / 'mine'}", classes=["missile"]).labels.tolist() == [0]


def test_tiny_imagenet(tmp_path: Path) -> None:
    names, wnids = class_list("tiny_imagenet20")
    assert (names[0], names[-1]) == ("hourglass", "viaduct")
    train = tmp_path / "tiny-imagenet-200" / "train"
    for label, wnid in enumerate(wnids):
        for number in range(2):
            put(train / wnid / "images" / f"{wnid}_{number}.JPEG", 100 * number + label)
        (train / wnid / f"{wnid}_boxes.txt").write_text("x")
    put(train / "n99999999" / "images" / "n99999999_0.JPEG", 999)
    dataset = open_dataset("tiny_imagenet20", tmp_path)
    assert seen(dataset) == {100 * number + label: label for label in range(20) for number in range(2)}
    assert dataset.classes == names
    val = tmp_path / "tiny-imagenet-200" / "val"
    for number in range(3):
        put(val / "images" / f"val_{number}.JPEG", number)
    lines = [
        f"val_0.JPEG\t{wnids[4]}\t0\t1\t2\t3",
        "val_1.JPEG\tn99999999\t0\t1\t2\t3",
        f"val_2.JPEG\t{wnids[1]}\t0\t0\t0\t0",
    ]
    (val / "val_annotations.txt").write_text("\n".join(lines) + "\n")
    assert seen(open_dataset("tiny_imagenet20:val", tmp_path)) == {0: 4, 2: 1}
    (val / "val_annotations.txt").write_text("val_0.JPEG n01\n")
    with raises("dataset-invalid", match=r"Line 1 "):
        open_dataset("tiny_imagenet20:val", tmp_path)


# --- lists: VisDA and DomainNet


def test_visda(tmp_path: Path) -> None:
    names = class_list("visda").names
    folder = tmp_path / "visda" / "validation"
    for label, name in enumerate(names):
        put(folder / name / "a.jpg", label)
        put(folder / name / "b.jpg", 100 + label)
    by_folder = open_dataset("visda", tmp_path)
    assert seen(by_folder) == {100 * part + label: label for label in range(12) for part in range(2)}
    assert by_folder.origin == "folder"
    # The list says which images count; its paths start at its own folder, or at the one above.
    for start in ("", "validation/"):
        lines = [f"{start}{name}/b.jpg {label}" for label, name in enumerate(names)]
        (folder / "image_list.txt").write_text("\n".join(lines))
        by_list = open_dataset("visda", tmp_path)
        assert seen(by_list) == {100 + label: label for label in range(12)}
        assert by_list.origin == "list"
        assert by_list.layout.endswith("image_list.txt")


def domainnet(root: Path, lines: list[str]) -> Path:
    path = root / "domainnet" / "sketch_test.txt"
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text("\n".join(lines) + "\n")
    return root


def test_domainnet(tmp_path: Path) -> None:
    names = class_list("domainnet").folders
    assert (len(names), names.index("teddy-bear"), names.index("t-shirt")) == (345, 303, 327)
    chosen = ["aircraft_carrier", "The_Eiffel_Tower", "t-shirt", "teddy-bear", "zigzag"]
    lines = []
    for number, name in enumerate(chosen):
        put(tmp_path / "domainnet" / "sketch" / name / f"sketch_{number}.jpg", number)
        lines.append(f"sketch/{name}/sketch_{number}.jpg {names.index(name)}")
    dataset = open_dataset("domainnet_sketch", domainnet(tmp_path, lines))
    assert seen(dataset) == {number: names.index(name) for number, name in enumerate(chosen)}
    assert {dataset.classes[label] for label in dataset.labels} == {
        *("aircraft carrier", "The Eiffel Tower", "t-shirt"),
        *("teddy-bear", "zigzag"),
    }
    assert len(dataset.classes) == 345


def test_lists_that_are_wrong(tmp_path: Path) -> None:
    put(tmp_path / "domainnet" / "sketch" / "t-shirt" / "a.jpg", 0)
    for lines, words in (
        # What a list of 343 names, without teddy-bear and t-shirt, would make of it.
        (["sketch/t-shirt/a.jpg 325"], r"Line 1 .* label 325 to an image of 't-shirt', but 325 is 'truck'"),
        (
            ["sketch/t-shirt/a.jpg 327", "sketch/zigzag/a.jpg 345"],
            "Line 2 .* 345 does not exist, there are 345 classes",
        ),
        (["sketch/t-shirt/a.jpg"], "Line 1 "),
        (["a.jpg 3"], "Line 1 "),
        (["", "sketch/t-shirt/a.jpg x"], "Line 2 "),
        ([""], "lists no images"),
        (["sketch/t-shirt/b.jpg 327"], r"the first should be '.*t-shirt/b\.jpg'"),
    ):
        with raises("dataset-invalid", match=words):
            open_dataset("domainnet_sketch", domainnet(tmp_path, lines))
    with raises(
        "dataset-missing", match=r"domainnet_clipart' is not in .*ROOT/domainnet/clipart_test\.txt.*ostta data get"
    ):
        open_dataset("domainnet_clipart", tmp_path)


# --- CCC's shards

SEQUENCE = "baseline_20_transition+speed_1000_seed_44"


def write_shard(path: Path, numbers: range) -> None:
    """As the published generator's TarWriter does.

    The sample's fields sorted, keys from zero in each shard, JPEG bytes.
    """
    path.parent.mkdir(parents=True, exist_ok=True)
    with tarfile.open(path, "w") as archive:
        for index, number in enumerate(numbers):
            fields = {
                "info": b"++dir++n01440764++name++x.JPEG++n1++snow++s1++1.0++n2++fog++s2++0.0",
                "input.jpg": encoded(solid(number)),
                "output.cls": str(number % 1000).encode(),
            }
            for field, content in fields.items():
                member = tarfile.TarInfo(f"sample_{index}.{field}")
                member.size = len(content)
                archive.addfile(member, io.BytesIO(content))


def test_ccc(tmp_path: Path) -> None:
    folder = tmp_path / "CCC" / SEQUENCE
    write_shard(folder / "serial_00000.tar", range(12))
    write_shard(folder / "serial_00001.tar", range(1005, 1010))
    dataset = open_dataset("ccc", tmp_path)
    # In the order of the files, where sample_10 comes after sample_9.
    assert [number_of(dataset.image(i)) for i in range(17)] == [*range(12), *range(1005, 1010)]
    assert dataset.labels.tolist() == [*range(12), *range(5, 10)]
    assert dataset.classes == class_list("imagenet").names
    assert "first 17 of 7,500,000" in dataset.note
    # What is not asked for is not looked at.
    (folder / "serial_00001.tar").write_bytes(b"junk")
    assert len(open_dataset("ccc", tmp_path, limit=12)) == 12
    with raises("dataset-invalid", match=r"serial_00001\.tar' cannot be read, it may be damaged"):
        open_dataset("ccc", tmp_path, limit=13)
    other = SEQUENCE.replace("20_", "0.0_")
    write_shard(tmp_path / "CCC" / other / "serial_00000.tar", range(3))
    assert len(open_dataset(f"ccc:{SEQUENCE.replace('20_', '0_')}", tmp_path)) == 3


def test_shards_that_are_wrong(tmp_path: Path) -> None:
    folder = tmp_path / "CCC" / SEQUENCE
    folder.mkdir(parents=True)
    with raises("dataset-invalid"):
        open_dataset("ccc", tmp_path)
    write_shard(folder / "serial_00001.tar", range(2))
    with raises("dataset-invalid", match=r"serial_00001\.tar but no serial_00000\.tar"):
        open_dataset("ccc", tmp_path)
    write_shard(folder / "serial_00000.tar", range(9))
    whole = (folder / "serial_00000.tar").read_bytes()
    # Each sample takes six blocks of 512: cut within a picture, within a header, and between two samples.
    for length in (3 * 6 * 512 + 1536 + 20, 3 * 6 * 512 + 300, 3 * 6 * 512):
        (folder / "serial_00000.tar").write_bytes(whole[:length])
        with raises("dataset-invalid", match=r"serial_00000\.tar' cannot be read, it may be damaged or truncated"):
            open_dataset("ccc", tmp_path)
    with tarfile.open(folder / "serial_00000.tar", "w") as archive:
        archive.addfile(tarfile.TarInfo("sample_0.info"))
    (folder / "serial_00001.tar").unlink()
    with raises("dataset-invalid"):
        open_dataset("ccc", tmp_path)
    with raises("dataset-unknown", match="no data set 'cccc'"):
        open_dataset("cccc", tmp_path)
    with raises("dataset-unknown", match="'ccc' has no split 'baseline_3'"):
        open_dataset("ccc:baseline_3", tmp_path)


# --- the `datasets` library


def table(names: list[str] | None = None, column: str = "image") -> object:
    datasets = pytest.importorskip("datasets")
    label = datasets.ClassLabel(names=names) if names else datasets.Value("int64")
    features = datasets.Features({"id": datasets.Value("string"), column: datasets.Image(), "label": label})
    rows = {"id": ["a", "b", "c"], column: [solid(n) for n in (5, 6, 7)], "label": [1, 0, 1]}
    return datasets.Dataset.from_dict(rows, features=features)


def test_a_folder_made_by_save_to_disk(tmp_path: Path) -> None:
    datasets = pytest.importorskip("datasets")
    datasets.disable_progress_bars()
    whole = table(["sea_cow", "cat"])
    whole.save_to_disk(tmp_path / "one")
    dataset = open_dataset(f"disk:{tmp_path / 'one'}")
    assert [number_of(dataset.image(i)) for i in range(3)] == [5, 6, 7]
    assert dataset.labels.tolist() == [1, 0, 1]
    assert dataset.classes == ("sea cow", "cat")
    assert dataset.origin == "disk"
    splits = {"train": whole.select([0, 1]), "validation": whole.select([2])}
    datasets.DatasetDict(splits).save_to_disk(tmp_path / "two")
    assert number_of(open_dataset(f"disk:{tmp_path / 'two'}").image(0)) == 7
    train = open_dataset(f"disk:{tmp_path / 'two'}:train")
    assert (len(train), number_of(train.image(1))) == (2, 6)
    with raises("dataset-unknown"):
        open_dataset(f"disk:{tmp_path / 'two'}:test")
    with raises("file-not-found"):
        open_dataset(f"disk:{tmp_path / 'absent'}")
    (tmp_path / "empty").mkdir()
    with raises("dataset-invalid", match=r"/empty'"):
        open_dataset(f"disk:{tmp_path / 'empty'}")


def test_the_hub(monkeypatch: pytest.MonkeyPatch) -> None:
    datasets = pytest.importorskip("datasets")
    asked: list[tuple[str, ...]] = []

    def load(*names: str) -> object:
        asked.append(names)
        return datasets.DatasetDict({"train": table(["x", "y"], "img"), "test": table(["x", "y"], "img").select([1])})

    monkeypatch.setattr(datasets, "load_dataset", load)
    dataset = open_dataset("hub:owner/name")
    assert (number_of(dataset.image(0)), dataset.classes, dataset.origin) == (6, ("x", "y"), "hub")
    assert len(open_dataset("hub:owner/name/digits:train")) == 3
    assert asked == [("owner/name",), ("owner/name", "digits")]
    assert open_dataset("hubc:owner/name", corruption="contrast").origin == "generated"
    for wrong in ("hub:name", "hub:a/b/c/d", "hub:a//b"):
        with raises("dataset-unknown"):
            open_dataset(wrong)
    monkeypatch.setattr(datasets, "load_dataset", lambda *names: table(column="picture"))
    with raises("classes-missing", match=r"class names of 'a/b' are unknown.*`classes`"):
        open_dataset("hub:a/b")
    assert open_dataset("hub:a/b", named=False).classes == ("0", "1")
    monkeypatch.setattr(datasets, "load_dataset", lambda *names: table().remove_columns("image"))
    with raises("dataset-invalid"):
        open_dataset("hub:a/b")


@pytest.mark.parametrize(
    ("problem", "words"),
    [
        (
            ConnectionError("Couldn't reach 'a/b' on the Hub (no route)"),
            r"hub cannot be reached and 'a/b' is not in its cache",
        ),
        (
            ValueError("BuilderConfig 'c' not found.\nlong trace"),
            r"BuilderConfig 'c' not found",
        ),
    ],
)
def test_the_hub_out_of_reach(monkeypatch: pytest.MonkeyPatch, problem: Exception, words: str) -> None:
    datasets = pytest.importorskip("datasets")

    def load(*names: str) -> object:
        raise problem

    monkeypatch.setattr(datasets, "load_dataset", load)
    with raises("dataset-missing", match=words):
        open_dataset("hub:a/b")


# --- corrupted forms of any clean set


def test_small_images_keep_their_size(tmp_path: Path) -> None:
    pixels = np.random.default_rng(0).integers(0, 256, (3, 28, 28), dtype=np.uint8)
    write_idx(tmp_path / "mnist", "t10k", pixels, [1, 2, 3])
    write_idx(tmp_path / "mnist", "train", pixels[::-1].copy(), [3, 2, 1])
    dataset = open_dataset("mnistc", tmp_path, corruption="contrast", severity=3, seed=2)
    rgb = np.repeat(pixels[1, ..., None], 3, axis=2)
    assert np.array_equal(np.asarray(dataset.image(1)), corrupt(rgb, "contrast", 3, seed=2, index=1))
    assert (dataset.name, dataset.origin) == ("mnistc", "generated")
    assert dataset.note.startswith("made here from mnist: contrast, severity 3, seed 2")
    assert open_dataset("mnistc:train", tmp_path).labels.tolist() == [3, 2, 1]


def test_large_images_are_made_as_imagenet_c_was(tmp_path: Path) -> None:
    photo = Image.fromarray(np.random.default_rng(0).integers(0, 256, (300, 520, 3), dtype=np.uint8))
    (tmp_path / "mine" / "cat").mkdir(parents=True)
    photo.save(tmp_path / "mine" / "cat" / "a.png")
    made = open_dataset(f"folderc:{tmp_path / 'mine'}", corruption="brightness", severity=2).image(0)
    # Short side 256 and centre of 224 (the width becomes 443, of which 109.5, rounded to even, are left of the crop).
    middle = photo.resize((443, 256), Image.Resampling.BILINEAR).crop((110, 16, 334, 240))
    assert np.array_equal(np.asarray(benchmark_size(photo)), np.asarray(middle))
    corrupted = Image.fromarray(corrupt(np.asarray(middle), "brightness", 2, seed=0, index=0))
    stored = Image.open(io.BytesIO(encoded(corrupted, "JPEG", quality=85)))
    assert np.array_equal(np.asarray(made), np.asarray(stored))


def test_frost_says_what_it_is_made_of(tmp_path: Path) -> None:
    write_idx(tmp_path / "mnist", "t10k", np.full((1, 28, 28), 99, np.uint8), [1])
    made = open_dataset("mnistc", tmp_path, corruption="frost")
    assert "procedural texture" in made.note
    (tmp_path / "frost").mkdir()
    with raises("textures-missing"):
        open_dataset("mnistc", tmp_path, corruption="frost")
    for number in range(1, 7):
        suffix = "png" if number < 4 else "jpg"
        Image.new("RGB", (400, 400), (10 * number, 200, 250)).save(tmp_path / "frost" / f"frost{number}.{suffix}")
    with_textures = open_dataset("mnistc", tmp_path, corruption="frost")
    assert "public textures" in with_textures.note
    assert not np.array_equal(np.asarray(with_textures.image(0)), np.asarray(made.image(0)))


def test_names(tmp_path: Path) -> None:
    for wrong, words in (
        ("mnist:", "no split ''"),
        ("mnist:Train", "no split 'Train': choose one of test, train"),
        ("mnistcc", "no data set 'mnistcc'"),
        ("sample:svhn", "no data set 'sample:svhn'"),
        ("c", "no data set 'c'"),
        ("", "no data set ''"),
    ):
        with raises("dataset-unknown", match=words):
            open_dataset(wrong, tmp_path)
    assert open_dataset("sample:mnistc", corruption="fog", limit=1).image(0).size == (28, 28)


def test_a_table_of_jpeg_images_is_no_faithful_copy(tmp_path: Path) -> None:
    pa, pq = pytest.importorskip("pyarrow"), pytest.importorskip("pyarrow.parquet")
    (tmp_path / "cifar10").mkdir()
    for form, told in (("JPEG", "re-encoded as JPEG"), ("PNG", "")):
        cell = {"bytes": encoded(solid(3, 32), form), "path": None}
        content = pa.table({"image": [cell] * 10_000, "label": [0] * 10_000})
        pq.write_table(content, tmp_path / "cifar10" / "test.parquet")
        dataset = open_dataset("cifar10", tmp_path)
        assert dataset.origin == ("parquet" if told else "official")
        assert told in dataset.note
        assert bool(dataset.note) == bool(told)


# --- idx files --------------------------------------------------------------------------------------------------------
def test_an_idx_file_of_ones_own(tmp_path: Path) -> None:
    pixels = np.arange(3 * 4 * 5).reshape(3, 4, 5)
    path = write_idx(tmp_path, "mine", pixels, [1, 0, 1])
    dataset = open_dataset(f"idx:{path}", classes=["ring", "star"])
    assert (dataset.origin, dataset.labels.tolist(), dataset.classes) == ("idx", [1, 0, 1], ("ring", "star"))
    assert np.array_equal(np.asarray(dataset.image(2))[..., 0], pixels[2])
    assert open_dataset(f"idx:{path}", named=False).classes == ("0", "1")
    assert open_dataset(f"idxc:{path}", named=False, corruption="contrast").origin == "generated"
    code, text = output("data", "check", f"idx:{path}")
    assert code == 0
    assert "5 x 4 pixels" in text
    assert placed(f"idx:{path.parent / '.' / path.name}") == f"idx:{path}"
    assert any(row.startswith("idx:PATH") for row in output("ls", "datasets")[1].splitlines())


def test_idx_files_that_cannot_be_read(tmp_path: Path) -> None:
    pixels = np.zeros((2, 4, 4))
    good = write_idx(tmp_path, "mine", pixels, [0, 1])
    write_idx(tmp_path, "none", pixels[:0], [])
    write_idx(tmp_path, "few", pixels, [0])
    (tmp_path / "plain").write_bytes(good.read_bytes())
    huge = tmp_path / "huge-images-idx3-ubyte"
    huge.write_bytes(struct.pack(">IIII", 2051, *[2**32 - 1] * 3))
    (tmp_path / "huge-labels-idx1-ubyte").write_bytes(struct.pack(">II", 2049, 0))
    for name, code, words in (
        ("idx:nowhere-images-idx3-ubyte", "file-not-found", "nowhere-images-idx3-ubyte"),
        (f"idx:{tmp_path}", "dataset-invalid", "mine-images-idx3-ubyte"),
        (f"idx:{tmp_path / 'plain'}", "dataset-invalid", "file of labels"),
        (f"idx:{tmp_path / 'few-images-idx3-ubyte'}", "dataset-invalid", "2 images, .* 1 labels"),
        (f"idx:{tmp_path / 'none-images-idx3-ubyte'}", "dataset-invalid", "none-images-idx3-ubyte' "),
        (f"idx:{huge}", "dataset-invalid", "header"),
        (f"idx:{good}", "classes-missing", None),
    ):
        with raises(code, match=words):
            open_dataset(name)
