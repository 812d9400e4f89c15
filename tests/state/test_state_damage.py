"""No damage to a state file is more than one sentence, and none changes an answer without a word."""

from __future__ import annotations

import random
import warnings
from collections.abc import Iterable
from pathlib import Path

import pytest
import torch

import ostta
from helpers import damage
from helpers.cases import adapter, backbone, images
from helpers.errors import raises
from helpers.steady import CLASSES, SIZE, steady_backbone, steady_images
from ostta import Error

WRAPPED = steady_backbone()
STATES = {
    "rosita": {"method": "rosita"},
    "per_class": {"method": "rosita", "desired_bank": "per_class", "undesired_bank": 8, "k": 2},
    "tda": {"method": "tda", "identifier": "daf", "entropy_window": (0.0, 1.0)},
    "dpe": {"method": "dpe"},
    "prototypes": {"method": "prototypes", "wait": 5, "pool": 8},
    "entropy": {"method": "entropy", "optimiser": "adamw", "confidence": 0.3},
    "unient": {"method": "unient", "identifier": "msp"},
    "cliptta": {"method": "cliptta", "buffer": 5, "memory": 6, "recent": 8, "reset_every": 9},
    "oga": {"method": "oga", "shots": 3},
    "onzeta": {"method": "onzeta"},
    # With a guard that has lists in part filled and a snapshot, and images that wait to be looked at.
    "field": {"profile": "field", "memory_images": 32, "undecided_images": 0, "snapshot_every": 16},
}


@pytest.fixture(scope="module")
def files(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Path]:
    """A good state of each kind, with banks that are filled in part."""
    folder, found = tmp_path_factory.mktemp("states"), {}
    for name, options in STATES.items():
        one = ostta.load(WRAPPED, CLASSES, **options)
        for image in steady_images(24):
            one.step(image)
        found[name] = folder / f"{name}.ostta"
        one.save(found[name])
    return found


def restored(path: Path, content: bytes, model: ostta.backbones.Backbone = WRAPPED) -> ostta.Adapter | None:
    """What a damaged file gives: None where it is refused in one line."""
    path.unlink(missing_ok=True)  # much quicker than to write over a file that was just mapped into memory
    path.write_bytes(content)
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            return ostta.Adapter.restore(path, model)
    except Error as problem:
        said = str(problem)
        assert said.startswith(str(path)), said
        assert said.isprintable(), said
        assert len(said) < 1_500, said
        return None


def check(path: Path, damages: Iterable[damage.Damage], *, may_load: bool) -> int:
    """Each damage, with the hash worked out again; how many were refused."""
    refused = 0
    # A snapshot holds once more what is beside it: one in eight of its damages.
    wanted = (each for number, each in enumerate(damages) if "/snapshots/" not in each[0] or number % 8 == 0)
    for what, parts in wanted:
        one = restored(path, parts.file())
        refused += one is None
        if one is not None:
            assert may_load, what
            for image in steady_images(3, start=40):
                one.step(image)
            one.pipeline.tensors()
    return refused


def test_a_damaged_description_is_a_sentence_or_another_sound_state(files: dict[str, Path], tmp_path: Path) -> None:
    damages = list(damage.damaged_content(damage.Parts.of(files["rosita"])))
    assert len(damages) > 500
    assert check(tmp_path / "x.ostta", damages, may_load=True) > 0.9 * len(damages)


@pytest.mark.parametrize("name", ["rosita", "tda", "dpe", "prototypes", "entropy"])
def test_a_damaged_option_is_a_sentence_or_another_sound_state(
    name: str, files: dict[str, Path], tmp_path: Path
) -> None:
    damages = list(damage.damaged_options(damage.Parts.of(files[name])))
    assert len(damages) > 350
    assert check(tmp_path / "x.ostta", damages, may_load=True) > 0.8 * len(damages)


@pytest.mark.parametrize("name", STATES)
def test_damaged_tensors_are_sentences(name: str, files: dict[str, Path], tmp_path: Path) -> None:
    good = damage.Parts.of(files[name])
    path = tmp_path / "x.ostta"
    assert check(path, damage.misfitting_tensors(good), may_load=False) > 40
    assert check(path, damage.impossible_values(good), may_load=False) > 10
    check(path, damage.odd_values(good), may_load=True)


def test_a_text_or_a_header_that_is_none_is_a_sentence(files: dict[str, Path], tmp_path: Path) -> None:
    path = tmp_path / "x.ostta"
    check(path, damage.bad_texts(damage.Parts.of(files["rosita"])), may_load=False)
    for what, content in damage.bad_headers(files["rosita"].read_bytes()):
        assert restored(path, content) is None, what


@pytest.mark.parametrize("name", ["rosita", "tda", "entropy"])
def test_no_flipped_bit_goes_unnoticed(name: str, files: dict[str, Path], tmp_path: Path) -> None:
    content = files[name].read_bytes()
    chance, path = random.Random(0), tmp_path / "x.ostta"
    for _ in range(300):
        flipped = bytearray(content)
        flipped[chance.randrange(len(content))] ^= 1 << chance.randrange(8)
        assert restored(path, bytes(flipped)) is None


def test_other_content_under_the_old_hash_is_refused(files: dict[str, Path], tmp_path: Path) -> None:
    """Renamed or reordered classes, another option, a moved overlay: all would load and answer otherwise."""
    good, whole = damage.Parts.of(files["rosita"]), files["rosita"].read_bytes()
    path = tmp_path / "x.ostta"
    for old, new in (
        (b'\\"ant\\", \\"bee\\"', b'\\"bee\\", \\"ant\\"'),
        (b'\\"ant\\"', b'\\"owl\\"'),
        (b'\\"lr\\": 0.001', b'\\"lr\\": 0.002'),
        (b'\\"step\\": 24', b'\\"step\\": 23'),
    ):
        assert whole.count(old) == 1
        path.write_bytes(whole.replace(old, new))
        with raises("state-damaged", match="does not match its hash"):
            ostta.Adapter.restore(path, WRAPPED)
    bare = whole.replace(b'"sha256":"', b'"sha255":"')
    path.write_bytes(bare)
    with raises("state-damaged", match="does not match its hash"):
        ostta.Adapter.restore(path, WRAPPED)
    overlay = good.tensors["method/overlay/norm.bias"].numpy().tobytes()
    path.write_bytes(whole.replace(overlay, b"\0" * len(overlay)))
    with raises("state-damaged", match="does not match its hash"):
        ostta.Adapter.restore(path, WRAPPED)


@pytest.mark.parametrize(
    ("name", "options"),
    [
        ("rosita", {"undesired_bank": 10**9}),
        ("rosita", {"undesired_bank": 1_000_000}),
        ("rosita", {"k": 10**9}),
        ("rosita", {"k": 10_000, "undesired_bank": 20_000}),
        ("rosita", {"window": 10**9}),
        ("rosita", {"group": "lora", "rank": 1024}),
        ("tda", {"shots": 10_000}),
        ("tda", {"negative_shots": 10_000}),
        ("tda", {"mask_window": [0.0, 1.0], "shots": 4}),
        ("dpe", {"shots": 10_000}),
        ("oga", {"shots": 10_000}),
        ("prototypes", {"pool": 1_000_000}),
    ],
)
def test_options_of_a_file_ask_for_no_more_than_it_holds(
    name: str, options: dict[str, object], files: dict[str, Path], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Refused before anything is built: the adapter's constructor is not even reached."""
    good = damage.Parts.of(files[name])
    for option, value in options.items():
        good.content["options"]["identifier" if option == "window" else "method"][option] = value

    def built(*_: object) -> None:
        raise AssertionError("built")

    monkeypatch.setattr(ostta.Adapter, "__init__", built)
    assert restored(tmp_path / "x.ostta", good.file()) is None


def test_a_state_that_its_adapter_cannot_have_written_is_refused_before_anything_is_built(
    files: dict[str, Path], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Such a state would be taken and could not be saved, or be saved and could not be read again."""

    def built(*_: object) -> None:
        raise AssertionError("built")

    monkeypatch.setattr(ostta.Adapter, "__init__", built)
    for name, step in {"field": 3, "tda": 2**53, "rosita": 2**53}.items():
        good = damage.Parts.of(files[name])
        good.content["step"] = step
        assert restored(tmp_path / "x.ostta", good.file()) is None, name
    good = damage.Parts.of(files["onzeta"])
    good.tensors["method/images"].fill_(2**53)
    assert restored(tmp_path / "x.ostta", good.file()) is None
    for name in ("field", "onzeta", "cliptta"):
        good = damage.Parts.of(files[name])
        good.content["classes"] = [f"class {number}" for number in range(100_000)]
        assert restored(tmp_path / "x.ostta", good.file()) is None, name


@pytest.mark.parametrize("name", ["rosita", "entropy"])
def test_trained_values_that_give_no_features_are_refused(name: str, files: dict[str, Path], tmp_path: Path) -> None:
    good = damage.Parts.of(files[name])
    bias = next(tensor for key, tensor in good.tensors.items() if key.startswith("method/overlay") and "bias" in key)
    bias += 1e20
    assert restored(tmp_path / "x.ostta", good.file()) is None


def test_a_bank_that_cannot_be_meant_is_refused_before_it_is_made() -> None:
    model = ostta.backbones.wrap(
        torch.nn.Sequential(torch.nn.Flatten(), torch.nn.Linear(3 * SIZE * SIZE, 512), torch.nn.LayerNorm(512)),
        torch.randn(1_000, 512),
        image_size=SIZE,
    )
    classes = [f"class {number}" for number in range(1_000)]
    for options in ({"method": "rosita", "k": 10_000, "undesired_bank": 20_000}, {"method": "tda", "shots": 10_000}):
        with raises("memory-limit", match=r"would take 19\.1 GiB, and at most 4 GiB are given"):
            ostta.load(model, classes, **options)


@pytest.mark.parametrize(("method", "kind"), [("tpt_c", "embedded"), ("palign_c", "embedded+maple")])
def test_damaged_prompts_are_sentences(method: str, kind: str, tmp_path: Path) -> None:
    path = tmp_path / "x.ostta"
    one = adapter(method, "all", kind, **({"optimiser": "adamw"} if method == "tpt_c" else {}))
    one.step(images(1)[0])
    one.save(path)
    good = damage.Parts.of(path)
    for kinds in (damage.misfitting_tensors, damage.impossible_values):
        tried = [item for item in kinds(good) if "second" in item[0] or "overlay" in item[0] or "steps" in item[0]]
        for what, parts in tried[:: max(1, len(tried) // 5)]:
            assert restored(path, parts.file(), backbone(kind)) is None, what
