"""Features as data.

Extraction, feature files as data sets, backbones and sources, and streams on features of real backbones.
"""

from __future__ import annotations

import importlib.util
import json
import sys
from contextlib import suppress
from pathlib import Path
from types import ModuleType

import numpy as np
import pytest
import torch

import ostta
from helpers.cases import backbone, images
from helpers.command import ostta as command
from helpers.errors import raises
from helpers.paths import ROOT
from ostta import Error, backbones
from ostta.bench.extract import extract
from ostta.bench.result import read_result
from ostta.bench.run import ensure_result, prepare
from ostta.bench.runner import missing_for
from ostta.bench.spec import RunSpec, run_key
from ostta.bench.stream import compose
from ostta.bench.suite import expand, load_suite
from ostta.centre import centre_of
from ostta.config.registry import ALL_METHODS as METHODS
from ostta.data import open_dataset, read_image
from ostta.data.dataset import Dataset
from ostta.data.images import ImageFeatures
from ostta.evaluation.loop import evaluate
from ostta.feature_files import FeatureFile, Metadata, _hash, read_features, write_features

LIMIT = 16
ON_IMAGES = {"desired": "sample:cifar10", "undesired": "sample:mnist", "limit": LIMIT}


@pytest.fixture(scope="module")
def photos(tmp_path_factory: pytest.TempPathFactory) -> FeatureFile:
    """Features of 16 photographs and of 16 digits."""
    path = tmp_path_factory.mktemp("features") / "photos.npz"
    return extract(RunSpec(method="zero_shot", **ON_IMAGES), None, path, words=["apple", "shark"], batch=7)


def on_features(file: FeatureFile, **fields) -> RunSpec:
    name = f"features:{file.path}"
    parts = {} if "profile" in fields else {"method": "zero_shot"}
    return RunSpec(**{"backbone": name, "desired": name, "undesired": name, **parts, **fields})


def small_file(path: Path, **changes) -> Path:
    """A feature file with the given arrays in place of its own and the right hashes; None leaves an array out."""
    rng = np.random.default_rng(0)
    rows = rng.normal(size=(6, 4)).astype("f4")
    rows /= np.linalg.norm(rows, axis=1, keepdims=True)
    arrays = {
        "features": rows,
        "labels": np.array([0, 1, 0, 1, -1, -1]),
        "classes": np.array(["cat", "dog"]),
        "class_embeddings": np.eye(2, 4, dtype="f4"),
        "logit_scale": np.array(100.0),
        **changes,
    }
    arrays = {name: array for name, array in arrays.items() if array is not None}
    hashes = {name: _hash(array) for name, array in arrays.items() if array.dtype != object and name != "metadata"}
    about = {
        "format": 1, "backbone": "mine", "weight_hash": "", "templates": [], "defaults": {}, "remark": "",
        "unfamiliar": [],
        "sets": [], "versions": {}, "sha256": hashes,
    }  # fmt: skip
    np.savez(path, **{"metadata": np.array(json.dumps(about)), **arrays})
    return path


def lines_of(*arguments: str) -> list[dict]:
    done = command(*arguments)
    assert done.returncode == 0, done.stderr
    return [json.loads(line) for line in done.stdout.splitlines()]


# --- runs -------------------------------------------------------------------------------------------------------------
@pytest.mark.parametrize(
    "fields",
    [
        {"method": "zero_shot"},
        {"method": "tda"},
        {"method": "dpe"},
        {"profile": "field", "guard": True},
    ],
    ids=["zero_shot", "tda", "dpe", "field"],
)
def test_a_run_on_features_gives_the_records_of_a_run_on_images(fields: dict, photos: FeatureFile) -> None:
    expected, found = (
        evaluate(prepared.adapter, prepared.stream)
        for prepared in (
            prepare(RunSpec(**ON_IMAGES, **fields), None, backbone("embedded")),
            prepare(on_features(photos, **fields), None),
        )
    )
    assert len(found) == 2 * LIMIT
    assert found.label == expected.label
    for column in ("known", "index", "verdict", "pseudo_label"):
        assert found.column(column).tolist() == expected.column(column).tolist(), column
    np.testing.assert_allclose(found.column("score"), expected.column("score"), atol=1e-4, rtol=1e-4)


def test_methods_that_need_images_refuse_features_in_one_sentence(photos: FeatureFile) -> None:
    suffices, accepted = set(), set()
    for method in METHODS:
        with suppress(Error):  # Some need another backbone.
            suffices |= {method} if ostta.load(backbone("embedded"), ["cat", "dog"], method).features_suffice else set()
        with suppress(Error):
            prepare(on_features(photos, method=method), None)
            accepted.add(method)
    assert accepted == suffices
    assert {"zero_shot", "tda", "dpe"} <= accepted
    # On the tower that made them, features are refused by the method and not by the backbone.
    with raises("image-missing"):
        prepare(on_features(photos, backbone="embedded", method="rosita"), None, backbone("embedded"))


def test_features_go_with_the_backbone_that_made_them_only(photos: FeatureFile, tmp_path: Path) -> None:
    """The tower itself can stand in for the file, and then has classes of any name."""
    prepared = prepare(on_features(photos, backbone="embedded"), None, backbone("embedded"))
    assert prepared.adapter.backbone.id == "embedded"
    other = small_file(tmp_path / "other.npz")
    with raises("features-other-backbone"):
        prepare(on_features(photos, backbone="embedded", desired=f"features:{other}"), None, backbone("embedded"))
    with raises("backbone-without-tower"):
        prepare(on_features(photos, undesired="sample:mnist"), None)
    for scenario in ({"kind": "covered"}, {"kind": "smooth"}, {"kind": "fooling"}):
        with raises("images-missing"):
            compose(on_features(photos, scenario=scenario), None)


def test_records_have_the_rows_of_the_file(tmp_path: Path) -> None:
    name = f"features:{small_file(tmp_path / 'small.npz', labels=np.array([0, -1, 1, -1, 0, 1]))}"
    sides = {"backbone": name, "desired": name, "undesired": name, "ratio": 0.5, "draw": "images"}
    prepared = prepare(RunSpec(method="zero_shot", **sides), None)
    records = evaluate(prepared.adapter, prepared.stream)
    rows = dict(zip(records.number, records.label, strict=True))
    assert rows == {0: 0, 1: -1, 2: 1, 3: -1, 4: 0, 5: 1}


def test_classes_of_one_file_can_be_known_and_unknown(photos: FeatureFile) -> None:
    composed = compose(on_features(photos, undesired_classes=["cat", "truck"]), None)
    assert composed.classes == tuple(name for name in photos.classes if name not in ("cat", "truck"))
    assert composed.stream.undesired_count == sum(
        photos.classes[label] in ("cat", "truck") for label in photos.labels[:LIMIT]
    )
    chosen = open_dataset(f"features:{photos.path}", classes=["truck", "cat"])
    rows = [
        row
        for row, label in enumerate(photos.labels)
        if label in (photos.classes.index("truck"), photos.classes.index("cat"))
    ]
    assert [chosen.image(number).values.tolist() for number in range(len(chosen))] == photos.features[rows].tolist()
    with raises("dataset-invalid", match="has no class 'unicorn'"):
        open_dataset(f"features:{photos.path}", classes=["unicorn"])


def test_a_file_without_unknown_images_is_no_unknown_side(tmp_path: Path) -> None:
    name = f"features:{small_file(tmp_path / 'known.npz', labels=np.array([0, 1, 0, 1, 0, 1]))}"
    with raises("dataset-empty"):
        compose(RunSpec(backbone=name, desired=name, undesired=name), None)
    only = write_features(
        tmp_path / "unknown.npz",
        np.eye(3, dtype="f2"),
        np.full(3, -1),
        (),
        np.zeros((0, 3), "f2"),
        1.0,
        Metadata("mine"),
    )
    assert len(open_dataset(f"features:{only.path}", named=False)) == 3
    with raises("dataset-invalid"):
        open_dataset(f"features:{only.path}")
    with raises("classes-missing"):
        backbones.load(f"features:{only.path}")


def test_a_result_belongs_to_the_content_of_the_file(photos: FeatureFile, tmp_path: Path) -> None:
    path = small_file(tmp_path / "small.npz")
    spec = on_features(read_features(path))
    first = ensure_result(prepare(spec, None), tmp_path / "out")
    assert ensure_result(prepare(spec, None), tmp_path / "out") == type(first)(first.path, fresh=False)
    small_file(path, logit_scale=np.array(50.0))
    second = ensure_result(prepare(spec, None), tmp_path / "out")
    assert second.fresh
    assert read_result(second.path).weight_hash != read_result(first.path).weight_hash
    assert read_result(second.path).cached_features  # Its times say nothing about a run on images.


def test_the_identity_of_a_stream_has_the_content_of_its_feature_files(tmp_path: Path) -> None:
    """Also of a file that is not the backbone, of which a fingerprint of the file reads a part only."""
    rows = np.eye(64, dtype="f4")[np.arange(2000) % 64]
    about = (np.full(len(rows), -1), (), np.zeros((0, 64), "f4"), 1.0, Metadata("mine"))
    known = f"features:{small_file(tmp_path / 'known.npz')}"
    identities = []
    for path, row in (("a", None), ("a", None), ("a", 1_000), ("a", 1_001)):
        changed = rows.copy()
        if row is not None:
            changed[row] = -changed[row]
        file = write_features(tmp_path / f"{path}.npz", changed, *about)
        spec = RunSpec(desired=known, undesired=f"features:{file.path}", method="zero_shot")
        identities.append(compose(spec, None).stream.identity)
    assert identities[0] == identities[1]
    assert len(set(identities)) == 3


def test_a_file_has_the_centre_of_the_backbone_that_encoded_it(photos: FeatureFile, tmp_path: Path) -> None:
    found = centre_of(backbones.load(f"features:{photos.path}"))
    assert torch.equal(found, centre_of(backbone("embedded")))
    assert centre_of(backbones.load(f"features:{small_file(tmp_path / 'small.npz')}")) is None
    for wrong in (np.zeros(3, "f4"), np.zeros(4), np.full(4, np.nan, "f4")):
        with raises("features-damaged"):
            read_features(small_file(tmp_path / "wrong.npz", centre=wrong))


def test_look_ahead_lets_features_through(photos: FeatureFile, tmp_path: Path) -> None:
    """On a tower, between images that are encoded in a batch too."""
    pictures = images(3)
    given = [pictures[0], ImageFeatures(photos.features[0]), *pictures[1:], ImageFeatures(photos.features[20])]
    one, ahead = (ostta.load(backbone("embedded"), photos.classes, "tda") for _ in range(2))
    for expected, found in zip(map(one.step, given), ahead.stream(given, ahead=4), strict=True):
        assert (found.best, found.reason) == (expected.best, expected.reason)
        assert found.score == pytest.approx(expected.score, abs=1e-5)
    spec = on_features(photos, method="tda", ahead=4)
    result = read_result(ensure_result(prepare(spec, None), tmp_path).path)
    alone = read_result(ensure_result(prepare(on_features(photos, method="tda"), None), tmp_path).path)
    assert result.metrics == alone.metrics


# --- the backbone -----------------------------------------------------------------------------------------------------
def test_a_file_is_a_backbone_with_its_classes_and_words(photos: FeatureFile) -> None:
    tower, stored = backbone("embedded"), backbones.load(f"features:{photos.path}")
    torch.testing.assert_close(stored.classifier(["cat", "apple"]), tower.classifier(["cat", "apple"]))
    assert list(stored.words) == ["apple", "shark"]
    assert (stored.logit_scale, stored.remark) == (tower.logit_scale, tower.remark)
    assert stored.unfamiliar(photos.classes) == tower.unfamiliar(photos.classes)
    assert photos.metadata.weight_hash == tower.weight_hash
    assert [(each["name"], each["images"]) for each in photos.metadata.sets] == [
        ("sample:cifar10", LIMIT),
        ("sample:mnist", LIMIT),
    ]
    assert ostta.load(stored, ["cat", "dog"], words=["apple", "violin", "shark"]).score.words.names == (
        "apple",
        "shark",
    )
    with raises("class-not-stored"):
        stored.classifier(["violin"])
    with raises("templates-not-stored"):
        ostta.load(stored, ["cat"], "zero_shot", templates=["a {}"])
    with raises("image-tower-missing"):
        ostta.load(stored, ["cat"], "zero_shot").step(images(1)[0])
    with raises("image-missing"):
        read_image(ImageFeatures(photos.features[0]))


def test_names_are_paths_or_files_of_the_data_folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "features").mkdir()
    small_file(tmp_path / "features" / "pets.npz")
    monkeypatch.delenv("OSTTA_DATA", raising=False)
    spec = RunSpec(backbone="features:pets", desired="features:pets", undesired="features:pets", method="tda")
    assert len(prepare(spec, tmp_path).stream) == 6
    with raises("data-folder-missing"):
        backbones.load("features:pets")
    monkeypatch.setenv("OSTTA_DATA", str(tmp_path))
    assert backbones.load("features:pets").feature_width == 4
    monkeypatch.chdir(tmp_path / "features")
    assert RunSpec(backbone="features:pets.npz").backbone == f"features:{tmp_path / 'features' / 'pets.npz'}"
    with raises("dataset-unknown"):
        open_dataset("featuresc:pets.npz")


# --- extraction -------------------------------------------------------------------------------------------------------
def test_a_stopped_extraction_resumes(photos: FeatureFile, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    read, reads, out = Dataset.image, [], tmp_path / "photos.npz"

    def image(self: Dataset, number: int):
        reads.append((self.name, number))
        if len(reads) == 13:
            raise KeyboardInterrupt
        return read(self, number)

    monkeypatch.setattr(Dataset, "image", image)
    spec = RunSpec(method="zero_shot", **ON_IMAGES)
    with pytest.raises(KeyboardInterrupt):
        extract(spec, None, out, batch=5)
    assert not out.exists()
    counts: list[int] = []
    second = extract(spec, None, out, batch=5, watch=lambda done, total, hm: counts.append(done))
    assert reads[13:] == [("sample:cifar10", n) for n in range(10, LIMIT)] + [("sample:mnist", n) for n in range(LIMIT)]
    assert counts == list(range(1, 2 * LIMIT + 1))
    np.testing.assert_allclose(second.features, photos.features, atol=1e-6)
    assert [path.name for path in tmp_path.iterdir()] == ["photos.npz"]


def test_the_command_writes_a_file_that_a_stream_reads(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    given = ["--desired", "sample:cifar10", "--limit", "6", "--half", "--words", "apple,shark", "--template", "a {}"]
    said = command("features", "extract", *given, "--out", "pets.npz").stdout
    assert said == "Features of 6 known and 0 unknown images, 128 numbers each: features:pets.npz\n"
    file = read_features("pets.npz")
    assert (file.features.dtype, file.words, file.metadata.templates) == (np.float16, ("apple", "shark"), ("a {}",))
    adapter = ostta.load(backbones.load("features:pets.npz"), file.classes, "tda")
    expected = [adapter.step_features(row.astype("f4")) for row in file.features]
    stream = ["stream", "features:pets.npz", "--method", "tda", "--no-guard", "--state", "pets.ostta", "--out", "found"]
    found = lines_of(*stream)
    assert [line["image"] for line in found] == [f"features:pets.npz#{row}" for row in range(6)]
    assert [(line["score"], line["best"]) for line in found] == [(each.score, each.best) for each in expected]
    assert lines_of(*stream) == []  # Every row has been processed.
    assert {"predictions.csv", "report.html"} <= {path.name for path in Path("found").iterdir()}


@pytest.mark.parametrize(
    ("arguments", "sentence"),
    [
        (["stream", "features:lost.npz"], "There is no feature file"),
        (["stream", "features:small.npz", "--sort", "copy", "--out", "out"], "--sort and --draw need images"),
        (["stream", "photo.png", "--backbone", "features:small.npz"], "so it cannot read photo.png"),
        (["stream", "features:small.npz", "--backbone", "embedded", "--classes", "cat"], "does not compute"),
        (["stream", "features:small.npz", "--method", "rosita"], "Nothing can be trained"),
        (["features", "extract", "--out", "x.npz"], "No images are named"),
        (["features", "extract", "--desired", "sample:mnist", "--out", "x.parquet"], "ends in .npz"),
        (["features", "extract", "--desired", "features:small.npz", "--out", "x.npz"], "has features already"),
    ],
)  # fmt: skip
def test_bad_input_is_one_sentence_and_writes_nothing(
    arguments: list[str], sentence: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    small_file(tmp_path / "small.npz")
    state = ["--state", "new.ostta"] if arguments[0] == "stream" else []
    done = command(*arguments, *state)
    assert done.returncode == 1
    assert sentence in done.stderr
    assert [path.name for path in tmp_path.iterdir()] == ["small.npz"]


# --- damage -----------------------------------------------------------------------------------------------------------
def unit_rows(*shape: int, dtype: str = "f4"):
    return np.full(shape, 1 / np.sqrt(shape[-1]), dtype)


@pytest.mark.parametrize(
    ("changes", "reason"),
    [
        ({"features": unit_rows(6, 4, dtype="f8")}, "of type float64"),
        ({"features": np.full((6, 4), np.nan, "f4")}, "row 0 of `features` is not finite"),
        ({"features": 2 * unit_rows(6, 4)}, "not of unit length"),
        ({"features": np.zeros((0, 4), "f4")}, "`features` has the shape"),
        ({"labels": np.array([0, 1, 2, 0, 1, 0])}, "labels must be from -1 to 1"),
        ({"labels": np.array([0, 1])}, "one integer a row"),
        ({"labels": None}, "`labels` is missing"),
        ({"classes": np.array(["cat", "cat"])}, "a duplicate name"),
        ({"classes": np.array(["cat"])}, "differ in length"),
        ({"class_embeddings": unit_rows(2, 5)}, r"not \[.., 4\]"),
        ({"logit_scale": np.array(-1.0)}, "not positive"),
        ({"words": np.array(["pear"])}, "without `word_embeddings`"),
        ({"classes": np.array(["cat", "dog"], dtype=object)}, "of type object"),
        ({"metadata": np.array("{")}, "not JSON"),
        ({"metadata": np.array('{"format": 9}')}, "its format is 9"),
    ],
)
def test_a_damaged_file_is_one_sentence(changes: dict, reason: str, tmp_path: Path) -> None:
    with raises("features-damaged", match=reason) as caught:
        read_features(small_file(tmp_path / "bad.npz", **changes))
    assert "\n" not in str(caught.value)


def test_changed_bytes_and_bombs_are_noticed(tmp_path: Path) -> None:
    whole = small_file(tmp_path / "good.npz").read_bytes()
    assert len(read_features(tmp_path / "good.npz").features) == 6
    bad = tmp_path / "bad.npz"
    for content in (whole[:-30], b"", b"no archive", whole[:200] + bytes([whole[200] ^ 1]) + whole[201:]):
        bad.write_bytes(content)
        with raises("features-damaged"):
            read_features(bad)
    np.savez_compressed(bad, features=np.zeros((4096, 4096), "f4"))
    with raises("features-damaged"):
        read_features(bad)
    # A file with a wrong row of features replaces no good one.
    good = (tmp_path / "good.npz").read_bytes()
    one = {"labels": np.zeros(1), "classes": ["cat"], "class_embeddings": unit_rows(1, 4), "logit_scale": 1.0}
    for changes in (
        {"features": np.ones((1, 4), "f4")},
        {"features": np.full((1, 4), np.nan, "f4")},
        {"words": ["pear", "pear"], "word_embeddings": unit_rows(2, 4)},
    ):
        with raises("features-invalid"):
            write_features(
                tmp_path / "good.npz", **{"features": unit_rows(1, 4), **one, "metadata": Metadata("mine"), **changes}
            )
    assert (tmp_path / "good.npz").read_bytes() == good


# --- streams on features of real backbones ----------------------------------------------------------------------------
def converter() -> ModuleType:
    path = ROOT / "tools" / "real_features.py"
    spec = importlib.util.spec_from_file_location("real_features", path)
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    # The features of these tests are narrower than those of the backbone.
    module.centre_of = lambda backbone: torch.full((8,), 0.1)
    return module


@pytest.fixture(scope="module")
def given(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Small arrays in the form of the given files.

    More known images than a stream shows, fewer unknown ones than ratio 1 asks for.
    """
    folder, rng = tmp_path_factory.mktemp("real"), np.random.default_rng(1)

    def rows(count: int):
        found = rng.normal(size=(count, 8))
        return (found / np.linalg.norm(found, axis=1, keepdims=True)).astype("f2")

    names = load_suite("decide/real").axes[1].entries
    unknown = sorted({name for entry in names for name in entry.fields.get("undesired_classes", ())})
    # The order of Imagenette's classes, by which labels count.
    classes = np.array(
        [
            "tench",
            "English springer spaniel",
            "cassette player",
            "chain saw",
            "church",
            "French horn",
            "garbage truck",
            "gas pump",
            "golf ball",
            "parachute",
        ]
    )
    assert unknown == sorted(classes.tolist())
    labels = rng.integers(0, 10, 60).astype("i2")
    np.savez(folder / "clip_b32_imagenette.npz", features=rows(60), labels=labels, classes=classes, text=rows(12))
    thumbnails = np.array(["airplane", "car", "bird", "cat", "deer", "dog", "frog", "horse", "boat", "truck"])
    np.savez(folder / "clip_b32_cifar500.npz", features=rows(40), labels=labels[:40], classes=thumbnails, text=rows(10))
    np.savez(folder / "clip_b32_words.npz", names=np.array(["pear", "fig", "pear"]), text=rows(3))
    np.savez(
        folder / "effnet0_imagenette.npz",
        clean=rows(30), snow=rows(30), labels=rng.integers(0, 10, 30).astype("i2"), classes=classes, text=rows(10),
        others=rows(20),
        svhn=rows(9), words=rows(2), word_names=np.array(["pear", "fig"]),
    )  # fmt: skip
    return folder


def recipe(known, labels, unknown, kinds, ratio: float, order: int, most: int, arrangement: str):
    """The published recipe of the streams, without ostta."""
    rng = np.random.default_rng([7, order])
    first = rng.permutation(len(known))[:most]
    second = rng.permutation(len(unknown))[: round(len(first) * ratio)]
    features = np.concatenate([known[first], unknown[second]])
    wanted = np.concatenate([labels[first], np.full(len(second), -1)])
    places = rng.permutation(len(features))
    if arrangement != "shuffled":
        what = np.concatenate([labels[first], 100 + kinds[second]])
        rng = np.random.default_rng([11, order])
        left = {kind: list(rng.permutation(np.flatnonzero(what == kind))) for kind in np.unique(what)}
        if arrangement == "ordered":
            places = [place for kind in rng.permutation(list(left)) for place in left[kind]]
        else:
            places = []
            while left:
                kind = rng.choice(list(left))
                length = int(rng.integers(5, 41))
                places += left[kind][:length]
                left[kind] = left[kind][length:]
                left = {each: queue for each, queue in left.items() if queue}
    return features[places], wanted[places]


@pytest.mark.parametrize("suite", ["decide/real", "decide/order"])
def test_the_suites_have_the_published_streams(suite: str, given: Path, tmp_path: Path) -> None:
    written, most = converter().convert(given, tmp_path), 25
    assert written[0].words == ("pear", "fig")
    effnet = np.load(given / "effnet0_imagenette.npz")
    rng = np.random.default_rng(3)
    near = [sorted(rng.permutation(10)[:known].tolist()) for known in (3, 4, 5, 5, 6, 7) for _ in range(2)]
    for cell in expand(load_suite(suite), seeds=[0, 3], only={"method": ["zero_shot"]}):
        if cell.spec.backbone == "embedded":
            continue
        spec = cell.spec.model_copy(update={"scenario": cell.spec.scenario.model_copy(update={"images": most})})
        composed = compose(spec, tmp_path)
        name, ratio = cell.column[0], float(cell.column[1])
        if not name.startswith("EfficientNet"):
            kind, number = name.split()
            known = sorted(np.random.default_rng(int(number)).permutation(10)[:5].tolist())
            known = near[int(number)] if kind == "near" else known
            clip = np.load(given / f"clip_b32_{'cifar500' if kind == 'near' else 'imagenette'}.npz")
            labels = np.array([known.index(label) if label in known else -1 for label in clip["labels"]])
            features = clip["features"]
            others = labels < 0
            sides = features[~others], labels[~others], features[others], clip["labels"][others]
            assert composed.classes == tuple(clip["classes"][known])
        else:
            condition, unknown = name.split()[1].split("/")
            sides = effnet[condition], effnet["labels"], effnet[unknown], np.zeros(20, int)
        expected, wanted = recipe(*sides, ratio, cell.seed, most, spec.arrangement)
        samples = list(composed.stream)
        assert [sample.label for sample in samples] == wanted.tolist()
        assert np.array_equal(np.stack([sample.image.values for sample in samples]), expected.astype("f4"))


def test_the_suite_runs_on_the_files_that_are_there(given: Path, tmp_path: Path) -> None:
    cells = expand(load_suite("decide/real"))
    missing = missing_for([cell.spec for cell in cells], tmp_path)
    assert len(missing) == 5  # One sentence a file.
    assert all("tools/real_features.py" in each.reason for each in missing)
    converter().convert(given, tmp_path)
    assert missing_for([cell.spec for cell in cells], tmp_path) == []
    (tmp_path / "features" / "effnet0_svhn.npz").unlink()
    (left,) = missing_for([cell.spec for cell in cells], tmp_path)
    assert len(left.runs) == len([cell for cell in cells if "svhn" in cell.column[0]])
    column = {"stream": ["EfficientNet snow/others"], "ratio": ["0.1"]}
    for cell in expand(load_suite("decide/real"), only=column):
        prepared = prepare(cell.spec, tmp_path)
        records = evaluate(prepared.adapter, prepared.stream)
        assert (records.labels >= 0).sum() == 30
        assert (records.labels < 0).sum() == 3


def test_a_method_that_cannot_run_on_a_feature_file_is_found_at_planning(given: Path, tmp_path: Path) -> None:
    converter().convert(given, tmp_path)
    (cell,) = expand(
        load_suite("decide/real"),
        only={"method": ["zero_shot"], "stream": ["CLIP 0"], "ratio": ["1"]},
    )
    specs = [cell.spec.model_copy(update={"method": method}) for method in ("zero_shot", "rosita", "tda")]
    (missing,) = missing_for(specs, tmp_path)
    assert missing.runs == {run_key(specs[1])}


def test_the_suite_of_arrangements_runs(given: Path, tmp_path: Path) -> None:
    converter().convert(given, tmp_path)
    cells = expand(load_suite("decide/order"))
    assert not [cell for cell in cells if cell.spec.method == "rosita" and cell.spec.backbone != "embedded"]
    column = {"stream": ["EfficientNet snow/svhn"], "ratio": ["0.1"], "arrangement": ["bursts"]}
    for cell in expand(load_suite("decide/order"), only=column):
        result = read_result(ensure_result(prepare(cell.spec, tmp_path), tmp_path / "runs").path)
        assert (result.counts["desired"], result.counts["undesired"]) == (30, 3)
        assert result.spec.arrangement == "bursts"


def test_the_converter_says_what_it_needs(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys) -> None:
    monkeypatch.setattr(sys, "argv", ["real_features.py", str(tmp_path), str(tmp_path / "data")])
    with pytest.raises(SystemExit):
        converter().main()
    assert "clip_b32_imagenette.npz, clip_b32_cifar500.npz, effnet0_imagenette.npz" in capsys.readouterr().err
    assert list(tmp_path.iterdir()) == []
