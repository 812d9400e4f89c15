"""Images encoded ahead of their decisions.

The answers of one image at a time, in order, and only where that is possible.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import closing
from itertools import islice
from pathlib import Path

import pytest
import torch
from PIL import Image

import ostta
from helpers.cases import CLASSES, SmallTower, adapter, backbone, images, trace, usual
from helpers.errors import raises
from helpers.results import bare_records, bare_result
from helpers.streaming import stream
from ostta import Error, Prediction
from ostta.bench.naming import run_command
from ostta.bench.result import read_result
from ostta.bench.run import ensure_result, prepare
from ostta.bench.spec import RunSpec, changed
from ostta.config.registry import ALL_METHODS as METHODS
from ostta.config.registry import ALL_SCORES as SCORES
from ostta.live.answers import open_stream
from ostta.live.state_keeper import AdapterSettings
from ostta.lookahead import DEFAULT_AHEAD, batch_size
from ostta.sources import Item, Source
from ostta.sources import open as open_source
from ostta.sources.live import Live


@pytest.fixture
def passes(monkeypatch: pytest.MonkeyPatch) -> Iterator[list[int]]:
    """The number of images in each pass of the small tower."""
    found: list[int] = []
    handle = backbone("wrapped").vision.register_forward_hook(
        lambda tower, given, features: found.append(len(features))
    )
    yield found
    handle.remove()


def require_the_same(found: list[Prediction], expected: list[Prediction]) -> None:
    """Equal decisions; scores to 1e-5, relative for those above 1."""
    for one, other in zip(found, expected, strict=True):
        for name in ("label", "index", "verdict", "adapted", "reason", "known", "best", "pseudo_label", "warming_up"):
            assert getattr(one, name) == getattr(other, name)
        assert [event.kind for event in one.events] == [event.kind for event in other.events]
        assert one.score == pytest.approx(other.score, rel=1e-5, abs=1e-5, nan_ok=True)
        thresholds = [float("nan") if each.threshold is None else each.threshold for each in (one, other)]
        assert thresholds[0] == pytest.approx(thresholds[1], rel=1e-5, abs=1e-5, nan_ok=True)


def one_by_one(one: ostta.Adapter, pictures: list) -> list[Prediction]:
    """By `step`, which knows nothing of batches."""
    found = []
    for picture in pictures:
        try:
            found.append(one.step(picture))
        except Error as problem:
            found.append(ostta.step.unseen_prediction(str(problem)))
    return found


# --- the same answers -------------------------------------------------------------------------------------------------
BAD = [b"", "lost.jpg", b"no image at all"]
PICTURES: list = [BAD[0], *images(20), BAD[1], BAD[2], *images(45)[20:]]


@pytest.mark.parametrize("method", METHODS)
def test_methods_that_need_only_features_give_the_answers_of_single_steps(method: str, passes: list[int]) -> None:
    """Every other method sees one image at a time."""
    alone = adapter(method, kind=usual(method))
    if not alone.features_suffice:
        assert method not in ("zero_shot", "tda", "dpe")
        if usual(method) == "wrapped":
            list(alone.stream(images(20)))
            assert max(passes) < 16
        return
    expected = one_by_one(alone, PICTURES)
    passes.clear()
    batched = adapter(method)
    require_the_same(list(batched.stream(PICTURES)), expected)
    assert max(passes) == 16
    assert batched.steps == alone.steps == 45


@pytest.mark.parametrize("score", SCORES)
def test_every_score_gives_the_answers_of_single_steps(score: str) -> None:
    alone, batched = (ostta.load(backbone("embedded"), CLASSES, "zero_shot", score=score) for _ in range(2))
    require_the_same(list(batched.stream(images(36), ahead=9)), one_by_one(alone, list(images(36))))


@pytest.mark.parametrize("method", ["zero_shot", "tda"])
def test_the_guard_and_the_recommended_rule_see_the_same(method: str) -> None:
    options = {"guard": True, "score": "field", "identifier": "field"}
    alone, batched = (ostta.load(backbone("embedded"), CLASSES, method, **options) for _ in range(2))
    require_the_same(list(batched.stream(images(40))), one_by_one(alone, list(images(40))))


def test_batches_are_full_and_in_order(passes: list[int]) -> None:
    one = adapter("zero_shot")
    list(one.stream(images(2)))  # the first batch of a tower is compared with a single image
    passes.clear()
    found = [p.score for p in one.stream(images(40))]
    assert passes == [16, 16, 8]
    passes.clear()
    assert [p.score for p in adapter("zero_shot").stream(images(40), ahead=4)] == pytest.approx(found, abs=1e-5)
    assert passes == [4] * 10


def test_half_precision_does_not_look_ahead() -> None:
    half = ostta.backbones.load("embedded", dtype="bfloat16")
    one, other = (ostta.load(half, CLASSES, "zero_shot") for _ in range(2))
    assert trace(one.stream(images(5))) == trace(map(other.step, images(5)))


# --- a decision is what counts ----------------------------------------------------------------------------------------
def test_images_count_only_once_they_are_decided() -> None:
    one, other = adapter("tda"), adapter("tda")
    assert len(list(islice(one.stream(images(30)), 7))) == 7
    list(other.stream(images(7), ahead=1))
    assert one.steps == other.steps == 7
    require_the_same([one.predict(images(8)[7])], [other.predict(images(8)[7])])


def test_changes_between_two_images_take_effect_at_once() -> None:
    one = adapter("tda")
    reasons = []
    for prediction in one.stream(images(6)):
        reasons.append(prediction.reason)
        if len(reasons) == 3:
            one.freeze()
    assert [reason == "the adapter is frozen" for reason in reasons] == [False] * 3 + [True] * 3


def test_a_problem_of_the_iterable_comes_after_the_images_before_it() -> None:
    def pictures() -> Iterator[Image.Image]:
        yield from images(5)
        raise OSError("the disk is gone")

    answers = adapter("zero_shot").stream(pictures(), ahead=16)
    assert [next(answers).verdict is not None for _ in range(5)] == [True] * 5
    with pytest.raises(OSError, match="the disk is gone"):
        next(answers)


def test_an_array_that_is_written_again_is_read_before_that() -> None:
    import numpy as np

    buffer = np.zeros((32, 32, 3), np.uint8)

    def frames() -> Iterator[np.ndarray]:
        for image in images(6):
            buffer[:] = np.asarray(image.resize((32, 32)))
            yield buffer

    expected = [p.score for p in adapter("zero_shot").stream(frames())]
    assert [p.score for p in adapter("zero_shot").stream(frames(), ahead=6)] == pytest.approx(expected, abs=1e-5)


def test_the_time_of_a_batch_is_shared_out() -> None:
    assert all(p.ms.encode > 0 for p in adapter("zero_shot").stream(images(6)))


# --- where it may not be done -----------------------------------------------------------------------------------------
def test_what_may_have_to_be_waited_for_is_not_read_ahead(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    images(1)[0].save(tmp_path / "a.png")
    (tmp_path / "list.txt").write_text(f"{tmp_path / 'a.png'}\n")
    monkeypatch.chdir(tmp_path)
    for source in (open_source(tmp_path), open_source("list.txt"), open_source("a.png", "list.txt"), [], ()):
        assert (batch_size(source, None), batch_size(source, 4)) == (DEFAULT_AHEAD, 4)
    waiting = [
        open_source(tmp_path, follow=True),
        open_source("-"),
        open_source("a.png", "-"),
        Live("camera", list, 1, None),
    ]
    for source in waiting:
        assert (batch_size(source, None), batch_size(source, 4)) == (1, 1)
    assert (batch_size(iter([1]), None), batch_size(iter([1]), 4)) == (1, 4)


def test_each_image_of_a_generator_is_answered_before_the_next_is_taken() -> None:
    taken: list[int] = []

    def pictures() -> Iterator[Image.Image]:
        for number, image in enumerate(images(4)):
            taken.append(number)
            yield image

    for number, _ in enumerate(adapter("zero_shot").stream(pictures())):
        assert taken == list(range(number + 1))


@pytest.mark.parametrize("ahead", [0, -1, True, 1.5, 2000])
def test_a_batch_size_that_is_none_is_one_sentence(ahead: object) -> None:
    with raises("option-invalid", match=r"^`ahead` is a whole number from 1 to 1,024, not [^.]*(1\.5)?\.$"):
        next(adapter("zero_shot").stream(images(2), ahead=ahead))  # type: ignore[arg-type]


class Mixing(SmallTower):
    """An image's features depend on the other images of the batch."""

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return super().forward(x - x.mean(0) / 2 if len(x) > 1 else x)


class OneOnly(SmallTower):
    """Refuses a batch."""

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        assert len(x) == 1
        return super().forward(x)


class FirstOnly(SmallTower):
    """Answers for the first image alone."""

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return super().forward(x[:1])


@pytest.mark.parametrize("tower", [Mixing, OneOnly, FirstOnly])
def test_towers_that_cannot_take_a_batch_get_single_images(tower: type[SmallTower]) -> None:
    torch.manual_seed(0)
    own = ostta.backbones.wrap(tower(), torch.randn(10, 16), image_size=32)
    one, other = (ostta.load(own, CLASSES, "zero_shot") for _ in range(2))
    expected = trace(map(other.step, images(20)))
    assert trace(one.stream(images(20))) == expected
    one.reset()
    assert trace(one.stream(images(20))) == expected


def test_a_backbone_without_a_tower_says_so() -> None:
    one = ostta.load(ostta.backbones.wrap(None, torch.eye(2)), ["cat", "dog"], "zero_shot")
    with raises("image-tower-missing"):
        list(one.stream(images(3)))


# --- ostta stream -----------------------------------------------------------------------------------------------------
class Eventful(Source):
    """Tells something before some of its images."""

    def __init__(self) -> None:
        super().__init__("eventful")

    def __iter__(self) -> Iterator[Item]:
        for number, image in enumerate(images(40)):
            if number in (3, 4, 20):
                self.add_event("lost", f"before {number}")
            yield Item(image, str(number), str(number))
        self.add_event("lost", "at the end")


@pytest.mark.parametrize("ahead", [1, 3, None])
def test_events_of_a_source_are_in_the_row_of_their_image(ahead: int | None) -> None:
    wanted = AdapterSettings(classes=CLASSES, backbone=backbone("wrapped"), method="zero_shot", guard=False)
    source = Eventful()
    with open_stream(wanted, ahead=ahead) as live, closing(live.answers(source)) as answers:
        rows = list(answers)
    found = {row["image"]: [event["sentence"] for event in row["events"]] for row in rows if row.get("events")}
    assert found == {"3": ["before 3"], "4": ["before 4"], "20": ["before 20"]}
    assert [event.sentence for event in source.new_events()] == ["at the end"]


def test_an_image_that_a_list_names_twice_counts_once_for_a_state(tmp_path: Path) -> None:
    for number, image in enumerate(images(3)):
        image.save(tmp_path / f"{number}.png")
    names = [0, 1, 0, 2, 1]
    (tmp_path / "list.txt").write_text("".join(f"{tmp_path}/{name}.png\n" for name in names))
    rows = {}
    for ahead in (1, 16):
        state = tmp_path / f"{ahead}.ostta"
        done = stream(tmp_path / "list.txt", "--classes", "cat,dog", "--state", state, "--ahead", ahead)
        rows[ahead] = [(line["row"], Path(line["image"]).name) for line in done.lines]
        assert "2 images were judged before" in done.told
        assert stream(tmp_path / "list.txt", "--state", state, "--ahead", ahead).lines == []
    assert rows[1] == rows[16] == [(1, "0.png"), (2, "1.png"), (3, "2.png")]


def test_pictures_of_a_stream_are_those_of_their_images(tmp_path: Path) -> None:
    """Frames and members of archives have no file to be read from again."""
    import tarfile

    for number, image in enumerate(images(6)):
        image.save(tmp_path / f"{number}.png")
    with tarfile.open(tmp_path / "all.tar", "w") as archive:
        for number in range(6):
            archive.add(tmp_path / f"{number}.png", f"{number}.png")
    drawn = {}
    for ahead in (1, 16):
        out = tmp_path / f"out{ahead}"
        arguments = ["--classes", "cat,dog,ship", "--out", out, "--draw", "--sort", "copy", "--ahead", ahead]
        assert stream(tmp_path / "all.tar", *arguments).code == 0
        drawn[ahead] = {path.name: path.read_bytes() for path in (out / "drawn").iterdir()}
    assert drawn[1] == drawn[16]
    assert len(drawn[1]) == 6


# --- ostta run --------------------------------------------------------------------------------------------------------
def spec(method: str = "tda", **fields: object) -> RunSpec:
    return RunSpec(method=method, desired="sample:cifar10c", undesired="sample:mnist", limit=20, **fields)


def test_a_run_looks_ahead_only_if_asked(tmp_path: Path) -> None:
    plain, ahead = (prepare(spec(ahead=ahead), None, backbone("embedded")) for ahead in (1, 16))
    assert plain.key != ahead.key
    assert "ahead" not in plain.spec.model_dump(mode="json")  # keys of all other runs stay as they were
    first, second = (read_result(ensure_result(each, tmp_path).path) for each in (plain, ahead))
    assert second.spec.ahead == 16
    assert (second.metrics.hm, second.counts) == (pytest.approx(first.metrics.hm), first.counts)
    assert ["--ahead 16" in str(run_command(each.spec)) for each in (first, second)] == [False, True]


def test_a_run_that_looks_ahead_goes_on_from_a_checkpoint_to_the_last_bit(tmp_path: Path) -> None:
    asked = spec(ahead=16)
    whole = ensure_result(prepare(asked, None, backbone("embedded")), tmp_path / "whole", keep_records=True).path

    class StoppedError(Exception):
        pass

    def stop(done: int, total: int, hm: float | None) -> None:
        if done == 25:
            raise StoppedError

    out, every = tmp_path / "parts", 7
    with pytest.raises(StoppedError):
        ensure_result(
            prepare(asked, None, backbone("embedded")), out, keep_records=True, checkpoint_every=every, watch=stop
        )
    again = prepare(asked, None, backbone("embedded"))
    path = ensure_result(again, out, keep_records=True, checkpoint_every=every).path
    assert bare_result(path) == bare_result(whole)
    assert bare_records(path.with_suffix(".parquet")) == bare_records(whole.with_suffix(".parquet"))


@pytest.mark.parametrize(
    ("fields", "reason"),
    [
        ({"method": "rosita"}, "rosita needs more of an image than its features under the frozen image tower"),
        ({"method": "tda", "dtype": "bfloat16"}, "a batch in half precision is rounded differently from single images"),
    ],
)
def test_a_run_that_cannot_look_ahead_is_refused_in_one_sentence(fields: dict, reason: str) -> None:
    with raises("ahead-impossible", match=rf"^Images cannot be encoded ahead: {reason}. Leave out `--ahead`.$"):
        prepare(changed(spec(ahead=4), **fields), None)
