"""Image features that runs on one stream share: the same figures to the last bit, and no image read twice."""

from __future__ import annotations

from pathlib import Path

import pytest

from helpers.cases import backbone
from helpers.results import bare_records, bare_result
from ostta.bench.features import FOLDER, cache_of
from ostta.bench.result import metric_value, read_result
from ostta.bench.run import Prepared, ensure_result, prepare
from ostta.bench.spec import RunSpec
from ostta.bench.workers import Job, Outcome, attempt
from ostta.data.dataset import Dataset


def spec(method: str = "zero_shot", **fields) -> RunSpec:
    return RunSpec(
        **{"method": method, "desired": "sample:cifar10c", "undesired": "sample:mnist", "limit": 12, **fields}
    )


def ready(asked: RunSpec) -> Prepared:
    return prepare(asked, None, backbone("embedded"))


def done(asked: RunSpec, out: Path, *, cached: bool = True, **how) -> Path:
    return ensure_result(ready(asked), out, keep_records=True, cache_features=cached, **how).path


def bare(path: Path) -> tuple[dict, dict]:
    result = bare_result(path)
    return {name: value for name, value in result.items() if name != "cached_features"}, bare_records(
        path.with_suffix(".parquet")
    )


@pytest.fixture
def reads(monkeypatch: pytest.MonkeyPatch) -> list[int]:
    """The numbers of the images that are read."""
    found: list[int] = []
    read = Dataset.image
    monkeypatch.setattr(Dataset, "image", lambda self, i: found.append(i) or read(self, i))
    return found


@pytest.mark.parametrize("method", ["zero_shot", "tda", "dpe"])
def test_results_are_those_of_the_images_to_the_last_bit(method: str, tmp_path: Path, reads: list[int]) -> None:
    plain = done(spec(method), tmp_path / "plain", cached=False)
    assert not (tmp_path / "plain" / FOLDER).exists()
    # Another identifier fills the cache, by an ordinary run; the run in question then needs no image.
    first = done(spec(method, identifier="daf"), tmp_path / "cached")
    assert len(list((tmp_path / "cached" / FOLDER).rglob("*.npz"))) == 2  # one for each side
    reads.clear()
    second = done(spec(method), tmp_path / "cached")
    assert reads == []
    assert bare(second) == bare(plain)
    before, after = read_result(first), read_result(second)
    assert (before.cached_features, after.cached_features) == (False, True)
    # Times of such a run are no times of a step.
    assert metric_value(before, "ms") is not None
    assert metric_value(after, "ms") is None


def test_what_trains_in_the_tower_is_never_cached(tmp_path: Path) -> None:
    prepared = ready(spec("rosita"))
    assert cache_of(prepared, tmp_path) is None
    assert cache_of(ready(spec("tpt")), tmp_path) is None
    assert cache_of(ready(spec(options={"precision": "mixed"})), tmp_path) is None


def test_other_images_have_another_file(tmp_path: Path) -> None:
    variants = [
        {},
        {"corruption": "fog"},
        {"severity": 3},
        {"seed": 1},  # the noise of a corruption is made by the seed
    ]
    stores = [folders(spec(**variant)) for variant in variants]
    assert len({desired for desired, _ in stores}) == len(variants)
    assert len({undesired for _, undesired in stores}) == 1
    same = [
        {"method": "tda"},
        {"identifier": "daf"},
        {"options": {"window": 64}},
        {"draw": "images"},
        {"limit": 11},
        {"ratio": 0.5},
    ]
    assert {folders(spec(**variant)) for variant in same} == {stores[0]}
    alike = {"undesired": "sample:mnistc"}
    fixed = alike | {"scenario": {"kind": "single", "undesired_corruption": "fog"}}
    assert folders(spec(**alike))[1] != folders(spec(**fixed))[1] != stores[0][1]
    changing = folders(spec(scenario={"kind": "continual", "corruptions": ["snow", "fog"]}))
    assert changing[:2] == stores[0]
    assert changing[2] == stores[1][0]
    assert cache_of(ready(spec(scenario={"kind": "smooth", "speed": 2})), Path()) is None


def folders(asked: RunSpec) -> tuple[Path, ...]:
    """The folders of each domain's desired and undesired images."""
    return tuple(store.folder for store in cache_of(ready(asked), Path())._sides.values())


def test_streams_that_show_some_of_the_same_images_share_them(tmp_path: Path, reads: list[int]) -> None:
    given = {"draw": "images", "limit": 30}
    done(spec(**given), tmp_path / "cached")
    reads.clear()
    other = done(spec(**given, undesired="sample:cifar10", ratio=0.2), tmp_path / "cached")
    assert len(reads) == 6  # the unknown ones alone
    assert bare(other) == bare(
        done(spec(**given, undesired="sample:cifar10", ratio=0.2), tmp_path / "plain", cached=False)
    )
    assert read_result(other).cached_features


@pytest.mark.parametrize("content", [b"", b"nothing", None])
def test_a_file_that_cannot_be_used_is_made_anew(content: bytes | None, tmp_path: Path) -> None:
    made = done(spec(identifier="daf"), tmp_path)
    paths = sorted((tmp_path / FOLDER).rglob("*.npz"))
    whole = [path.read_bytes() for path in paths]
    for path in paths:
        path.write_bytes(path.read_bytes()[:-8] if content is None else content)
    again = done(spec(), tmp_path)
    assert not read_result(again).cached_features
    assert [path.read_bytes() for path in paths] == whole
    assert read_result(made).metrics.auroc == read_result(again).metrics.auroc


class Cut(Exception):  # noqa: N818 - it stands for a power cut
    pass


def test_a_run_that_was_cut_off_goes_on_to_the_same_bits(tmp_path: Path) -> None:
    def cut(at: int):
        def watch(image: int, total: int, hm: float | None) -> None:
            if image == at:
                raise Cut

        return watch

    plain = done(spec(), tmp_path / "plain", cached=False)
    # While features are being noted: those of the second part are kept.
    out = tmp_path / "cut"
    with pytest.raises(Cut):
        done(spec(), out, checkpoint_every=4, watch=cut(10))
    assert bare(done(spec(), out, checkpoint_every=4)) == bare(plain)
    assert (out / FOLDER).exists()
    # While it is being read.
    done(spec(identifier="daf"), out)
    with pytest.raises(Cut):
        done(spec(options={"window": 100}), out, checkpoint_every=4, watch=cut(10))
    assert read_result(done(spec(options={"window": 100}), out, checkpoint_every=4)).cached_features


def test_a_grid_takes_it_from_the_job(tmp_path: Path) -> None:
    for identifier in ("daf", "lda"):
        job = Job(spec=spec(identifier=identifier), root=None, out=tmp_path, cache_features=True)
        assert attempt(job).state is Outcome.DONE
    found = {result.spec.identifier: result.cached_features for result in map(read_result, tmp_path.glob("*.json"))}
    assert found == {"daf": False, "lda": True}
