"""A folder of real results: its tables, its data in hand, its pictures, and `ostta compare`.

The runs are made once for all tests.
"""

from __future__ import annotations

import csv
import io
import json
import re
import shutil
import sys
from contextlib import redirect_stderr, redirect_stdout
from pathlib import Path

import numpy as np
import pandas
import pyarrow.parquet
import pytest
from PIL import Image

import ostta
from helpers.errors import raises
from ostta.bench.against_frozen import means_to_frozen, ranks_of, to_frozen
from ostta.bench.collected import folder_results
from ostta.bench.compare import as_json, compare, open_sides
from ostta.bench.figures import figures_of
from ostta.bench.formats import FORMATS
from ostta.bench.result import read_result
from ostta.bench.run import run
from ostta.bench.runner import run_grid
from ostta.bench.spec import RunSpec, changed
from ostta.cli import main
from ostta.pages.compare import compare_page
from ostta.pages.images import stream_images
from ostta.pages.parts import Axis, Chart
from ostta.pages.pictures import as_file, drawing, save_pictures

BASE = RunSpec(desired="sample:cifar10c", undesired="sample:mnist", limit=20, draw="images", method="zero_shot")
SPECS = [
    changed(BASE, method=method, corruption=corruption, seed=seed)
    for method in ("tda", "zero_shot")
    for corruption in ("snow", "contrast")
    for seed in (0, 1)
]
SNOW = ("sample:cifar10c snow / sample:mnist; limit 20",)
FROZEN, TDA = ("embedded", "zero_shot"), ("embedded", "tda")


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    out = tmp_path_factory.mktemp("results")
    summary = run_grid(SPECS, None, out, engine="inside", threads=1)
    assert (summary.done, summary.failed) == (len(SPECS), ())
    return out


def command(*arguments: str) -> tuple[int, str, str]:
    """Exit code, output and errors of `ostta`, in this process."""
    out, err, code = io.StringIO(), io.StringIO(), 0
    before, sys.argv = sys.argv, ["ostta", *arguments]
    try:
        with redirect_stdout(out), redirect_stderr(err):
            main()
    except SystemExit as stop:
        code = stop.code if isinstance(stop.code, int) else 0
    finally:
        sys.argv = before
    return code, out.getvalue(), err.getvalue()


def file_of(folder: Path, **wanted: object) -> Path:
    found = [
        path
        for path in folder.glob("*.json")
        if all(getattr(read_result(path).spec, n) == v for n, v in wanted.items())
    ]
    assert len(found) == 1, found
    return found[0]


# --- records ----------------------------------------------------------------------------------------------------------
def test_records_are_kept_unless_somebody_says_no(folder: Path, tmp_path: Path) -> None:
    assert len(list(folder.glob("*.parquet"))) == len(SPECS)
    small = changed(BASE, limit=2)
    path = run(small, None, tmp_path, keep_records=False)
    assert read_result(path).records is None
    # A result without records is a result: it is made again only where records are asked for.
    before = path.stat().st_mtime_ns
    assert run(small, None, tmp_path).stat().st_mtime_ns == before
    assert read_result(run(small, None, tmp_path, keep_records=True)).records is not None


# --- tables -----------------------------------------------------------------------------------------------------------
def test_a_folder_has_its_tables_with_intervals_and_the_frozen_row_first(folder: Path) -> None:
    figures = figures_of(str(folder))
    assert figures.rows == [FROZEN, TDA]
    assert figures.columns == [("sample:cifar10c contrast / sample:mnist; limit 20",), SNOW]
    results = {seed: read_result(file_of(folder, method="tda", corruption="snow", seed=seed)) for seed in (0, 1)}
    figure = figures.figure(TDA, SNOW, "hm")
    assert figure.mean == pytest.approx(np.mean([result.metrics.hm for result in results.values()]))
    delta = figures.figure(TDA, SNOW, "delta_hm")
    assert delta.over == "images and seeds"
    assert delta.low <= delta.mean <= delta.high
    text = FORMATS["md"](figures)
    assert text.index("| zero_shot") < text.index("| tda")
    assert "paired 95 % interval of a difference over images" in text
    assert "between 2 methods needs at least 6 streams" in text


def test_each_method_against_the_frozen_row_as_a_list(folder: Path) -> None:
    figures = figures_of(str(folder))
    found = to_frozen(figures)
    assert [(one.row, one.column[0].split()[1]) for one in found] == [(TDA, "contrast"), (TDA, "snow")]
    for one in found:
        assert one.difference == pytest.approx(one.value - one.frozen)
        assert (one.seeds, one.shown, one.streams, one.over) == ((0, 1), 40, 1, "images and seeds")
        # Two draws of 20 + 20 images have some in common.
        assert 40 < one.images <= 80
    (mean,) = means_to_frozen(figures)
    assert mean.difference == pytest.approx(np.mean([one.difference for one in found]))
    assert (mean.row, mean.column, mean.streams, mean.shown) == (TDA, (), 2, 80)
    assert mean.low <= mean.difference <= mean.high


def test_without_records_the_table_says_that_there_is_no_interval(folder: Path, tmp_path: Path) -> None:
    for path in folder.glob("*.json"):
        result = read_result(path)
        spec = changed(result.spec, draw="order")
        result.model_copy(update={"records": None, "spec": spec}).write(tmp_path / path.name)
    figures = figures_of(str(tmp_path))
    assert all(one.low is None and one.over is None and not one.marked for one in to_frozen(figures))
    assert not figures.any_best
    text = FORMATS["md"](figures)
    assert (
        "There is no interval for any difference: 8 of 8 runs kept no records, and seeds that reorder the same images"
        in text
    )


def test_seeds_that_draw_images_give_an_interval_without_records(folder: Path, tmp_path: Path) -> None:
    for path in folder.glob("*.json"):
        read_result(path).model_copy(update={"records": None}).write(tmp_path / path.name)
    figures = figures_of(str(tmp_path))
    delta = figures.figure(TDA, SNOW, "delta_hm")
    assert delta.over == "seeds"
    # Student's t with one degree of freedom: 12.706 standard errors to each side.
    assert delta.high - delta.mean == pytest.approx(12.7062 * delta.std / np.sqrt(2), rel=1e-4)
    assert "over seeds]" in FORMATS["md"](figures)


def test_what_a_folder_is_asked_for_in_vain(folder: Path, tmp_path: Path) -> None:
    with raises("results-missing"):
        figures_of(str(tmp_path))
    with raises("option-not-for-folders"):
        figures_of(str(folder), limit=5)
    with raises("entry-unknown", match="There is no entry of method 'tdo'; did you mean 'tda'"):
        figures_of(str(folder), only={"method": ["tdo"]})
    with raises("suite-unknown"):
        figures_of(str(tmp_path / "nowhere"))
    only = figures_of(str(folder), seeds=[1], only={"method": ["tda"]})
    assert (only.rows, only.suite.seeds) == ([TDA], (1,))


def test_runs_that_would_have_one_name_say_in_what_they_differ(folder: Path, tmp_path: Path) -> None:
    result = read_result(file_of(folder, method="tda", corruption="snow", seed=0))
    for number, fields in enumerate(({}, {"profile": "paper"}, {"severity": 4}, {"options": {"shots": 5}})):
        result.model_copy(update={"spec": changed(result.spec, **fields)}).write(tmp_path / f"{number}.json")
    collected = folder_results(tmp_path)
    assert {cell.row[1] for cell in collected.cells} == {
        "tda (profile=reference)",
        "tda (profile=paper)",
        "tda shots=5",
    }
    assert len({cell.column for cell in collected.cells}) == 2
    assert collected.found == len(collected.cells) == 4


# --- data in hand -----------------------------------------------------------------------------------------------------
def test_results_as_a_table_of_pandas(folder: Path) -> None:
    table = ostta.bench.load_results(folder)
    assert len(table) == len(SPECS)
    assert not table[["backbone", "method", "corruption", "seed"]].duplicated().any()
    row = table[(table["method"] == "tda") & (table["corruption"] == "snow") & (table["seed"] == 1)].iloc[0]
    result = read_result(folder / row["file"])
    assert (row["hm"], row["auroc"], row["stream_hash"]) == (
        result.metrics.hm,
        result.metrics.auroc,
        result.stream.hash,
    )
    assert (row["backbone"], row["images_desired"], row["records"]) == ("embedded", 20, result.records)
    with raises("results-missing"):
        ostta.bench.load_results(folder / "nowhere")


def test_a_table_names_the_score_and_no_folder_of_a_plug_in(folder: Path, tmp_path: Path) -> None:
    result = read_result(next(folder.glob("*.json")))
    own = {"method": "/home/me/own.py:Mine", "plugins": {"/home/me/own.py:Mine": "0" * 64}}
    for identifier in ("lda", "msp", "/home/me/own.py:Line"):
        spec = changed(result.spec, **own, options={}, score=None, identifier=identifier)
        name = identifier.rpartition(":")[2]
        result.model_copy(update={"spec": spec, "records": None}).write(tmp_path / f"{name}.json")
    table = ostta.bench.load_results(tmp_path).set_index("file")
    assert table["score"].dropna().to_dict() == {"lda.json": "max", "msp.json": "msp"}
    assert set(table["method"]) == {"own.py:Mine"}
    assert set(table["identifier"]) == {"lda", "msp", "own.py:Line"}


def test_the_same_data_in_every_format(folder: Path, tmp_path: Path) -> None:
    table = ostta.bench.load_results(folder).sort_values("file")
    code, text, _ = command("bench", "table", str(folder), "--format", "csv")
    lines = sorted(csv.DictReader(io.StringIO(text)), key=lambda line: line["file"])
    assert code == 0
    assert [float(line["hm"]) for line in lines] == table["hm"].tolist()
    assert {(line["backbone"], line["method"]) for line in lines} == {("embedded", "tda"), ("embedded", "zero_shot")}
    kept = tmp_path / "runs.parquet"
    assert command("bench", "table", str(folder), "--format", "parquet", "--to", str(kept))[0] == 0
    again = pyarrow.parquet.read_table(kept).to_pandas().sort_values("file")
    pandas.testing.assert_frame_equal(
        again.reset_index(drop=True), table.reset_index(drop=True), check_dtype=False, check_like=True
    )
    code, text, _ = command("bench", "table", str(folder), "--format", "json")
    content = json.loads(text)
    assert code == 0
    assert {run["file"]: run["hm"] for run in content["runs"]} == dict(zip(table["file"], table["hm"], strict=True))
    delta = figures_of(str(folder)).figure(TDA, SNOW, "delta_hm")
    (stored,) = [
        each
        for each in content["figures"]
        if (each["method"], each["stream"], each["metric"]) == ("tda", SNOW[0], "delta_hm")
    ]
    assert (stored["mean"], stored["low"], stored["high"], stored["over"]) == (
        delta.mean,
        delta.low,
        delta.high,
        "images and seeds",
    )
    assert "--to runs.parquet" in command("bench", "table", str(folder), "--format", "parquet")[2]


def test_the_results_are_listed(folder: Path) -> None:
    code, text, _ = command("ls", "results", str(folder))
    lines = text.splitlines()
    assert (code, len(lines)) == (0, 2 + len(SPECS))
    assert lines[1].split() == ["stream", "backbone", "method", "seed", "images", "HM", "AUROC", "records", "file"]
    assert all(path.name in text for path in folder.glob("*.json"))
    listed = json.loads(command("ls", "results", str(folder), "--format", "json")[1])
    assert len(listed) == len(SPECS)
    assert command("ls", "results", str(folder / "nowhere"))[0] == 1


def test_pictures_are_files_that_programs_read(folder: Path, tmp_path: Path) -> None:
    figures = figures_of(str(folder))
    paths, sentences = save_pictures(figures, tmp_path / "first", ["svg", "pdf", "png"])
    assert [path.name for path in paths] == ["differences.svg", "differences.pdf", "differences.png"]
    assert [path.read_bytes()[:4] for path in paths[1:]] == [b"%PDF", b"\x89PNG"]
    svg = paths[0].read_text()
    assert svg.startswith("<?xml")
    assert ">embedded tda<" in svg.replace("\n", "")
    assert ["at least 6 streams" in sentence for sentence in sentences] == [True]
    again, _ = save_pictures(figures, tmp_path / "second", ["svg", "pdf", "png"])
    assert [path.read_bytes() for path in again] == [path.read_bytes() for path in paths]
    with raises("format-unknown", match="no format of pictures 'gif'"):
        save_pictures(figures, tmp_path, ["gif"])


def test_a_picture_is_as_wide_as_its_longest_text() -> None:
    chart = Chart(Axis(0, 1, name="a label that is much wider than the panel above it"), Axis(0, 1))
    image = Image.open(io.BytesIO(as_file(drawing([chart], (1.0, 1.0), "title"), "png"))).convert("L")
    dark = np.asarray(image) < 128
    assert not dark[:, [0, -1]].any()
    assert image.width > 2 * 160


def test_ranks_over_enough_streams_are_a_table_and_a_picture(folder: Path, tmp_path: Path) -> None:
    """TDA better on all of six streams: Wilcoxon's smallest chance, 2 / 2^6, is below 0.05."""
    for method in ("tda", "zero_shot"):
        result = read_result(file_of(folder, method=method, corruption="snow", seed=0))
        for place, corruption in enumerate(("snow", "fog", "frost", "contrast", "pixelate", "jpeg")):
            hm = 50.0 + 3 * place + (method == "tda") * (1 + 0.1 * place)
            figures = result.metrics.model_copy(update={"hm": hm})
            spec = changed(result.spec, corruption=corruption)
            copied = result.model_copy(update={"spec": spec, "metrics": figures, "records": None})
            copied.write(tmp_path / f"{method}{place}.json")
    figures = figures_of(str(tmp_path))
    (one,) = ranks_of(figures)
    assert (one.backbone, one.ranks.streams, one.ranks.average) == ("embedded", 6, (1.0, 2.0))
    assert (one.ranks.apart, one.ranks.differ) == ({("tda", "zero_shot")}, 2 / 2**6)
    text = FORMATS["md"](figures)
    assert re.search(r"\| tda +\| +1\.00 \| +1 worse \|\n\| embedded \| zero_shot +\| +2\.00 \| +1 better \|", text)
    paths, sentences = save_pictures(figures, tmp_path / "drawn", ["svg"])
    assert (paths[-1].name, sentences) == ("ranks-embedded.svg", [])
    svg = paths[-1].read_text()
    assert "tda  1.00" in svg
    assert "2.00  zero_shot" in svg


# --- compare ----------------------------------------------------------------------------------------------------------
@pytest.fixture(scope="module")
def halves(folder: Path, tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, Path]:
    """The frozen runs in one folder, TDA's in another."""
    both = tmp_path_factory.mktemp("a"), tmp_path_factory.mktemp("b")
    for method, half in zip(("zero_shot", "tda"), both, strict=True):
        for path in folder.glob(f"{method}-*"):
            shutil.copy(path, half)
    return both


def test_two_folders_are_paired_and_their_images_counted(halves: tuple[Path, Path]) -> None:
    found = compare(open_sides(*halves))
    assert [(setting.field, setting.first, setting.second) for setting in found.common] == [
        ("spec.method", "zero_shot", "tda")
    ]
    assert [each.pair.seeds for each in found.pairs] == [(0, 1), (0, 1)]
    snow = found.pairs[1]
    frames = [
        [pyarrow.parquet.read_table(stored.records).to_pandas() for stored in side]
        for side in (snow.pair.first, snow.pair.second)
    ]
    first, second = (pandas.concat(side, ignore_index=True) for side in frames)
    right = [
        np.where(each["label"] >= 0, each["known"] & (each["index"] == each["label"]), ~each["known"]).astype(bool)
        for each in (first, second)
    ]
    assert snow.changes.shown == len(first) == 80
    assert snow.changes.wrong_to_right == (~right[0] & right[1]).sum()
    assert snow.changes.right_to_wrong == (right[0] & ~right[1]).sum()
    assert snow.changes.accepted_to_rejected == (first["known"] & ~second["known"]).sum()
    assert snow.changes.rejected_to_accepted == (~first["known"] & second["known"]).sum()
    assert snow.images == len(set(zip(first["source"], first["number"], strict=True)))
    # The same differences as in the table of the folder that has both.
    for each in found.pairs:
        figures = {figure.metric: figure for figure in each.figures}
        assert figures["hm"].low <= figures["hm"].difference <= figures["hm"].high
        assert figures["hm"].difference == pytest.approx(figures["hm"].second - figures["hm"].first)


def test_the_interval_of_a_comparison_is_that_of_the_table(folder: Path, halves: tuple[Path, Path]) -> None:
    """Drawn with the same seed from the same images where there is one stream.

    Here there are two, so they agree but for chance.
    """
    delta = figures_of(str(folder)).figure(TDA, SNOW, "delta_hm")
    hm = compare(open_sides(*halves)).pairs[1].figures[0]
    assert hm.difference == pytest.approx(delta.mean)
    width = delta.high - delta.low
    assert abs(hm.low - delta.low) < 0.15 * width + 1e-9
    assert abs(hm.high - delta.high) < 0.15 * width + 1e-9


def test_a_result_beside_itself_differs_in_nothing(folder: Path) -> None:
    path = file_of(folder, method="tda", corruption="snow", seed=0)
    found = compare(open_sides(path, path))
    assert found.common == ()
    assert {figure.difference for figure in found.pairs[0].figures} == {0.0}
    assert not any(figure.marked for figure in found.pairs[0].figures)
    changes = found.pairs[0].changes
    assert (changes.wrong_to_right, changes.right_to_wrong, changes.other_class) == (0, 0, 0)
    assert "Differences in settings: none" in command("compare", str(path), str(path))[1]


def test_other_streams_and_missing_records_leave_the_figures(folder: Path, tmp_path: Path) -> None:
    first = file_of(folder, method="tda", corruption="snow", seed=0)
    other = compare(open_sides(first, file_of(folder, method="tda", corruption="contrast", seed=0)))
    assert "on different streams" in other.pairs[0].why_not
    assert other.pairs[0].figures[0].low is None
    # The same images under another corruption are another stream, although the hash, which is of the order, is the
    # same.
    assert [setting.field for setting in other.common] == ["spec.corruption", "stream.identity"]
    bare = tmp_path / "bare.json"
    read_result(first).model_copy(update={"records": None}).write(bare)
    found = compare(open_sides(first, bare))
    assert "bare.json has no records" in found.pairs[0].why_not
    assert json.loads(as_json(found))["pairs"][0]["changes"] is None
    assert "bare.json has no records" in compare_page(found, lambda result: stream_images(result, None))


def test_the_page_shows_the_images_that_changed_sides(halves: tuple[Path, Path], tmp_path: Path) -> None:
    page = tmp_path / "compare.html"
    code, text, _ = command("compare", *map(str, halves), "--to", str(page))
    assert (code, text.splitlines()[-1]) == (0, str(page))
    html = page.read_text()
    found = compare(open_sides(*halves))
    firsts = [pair.pair.first[0] for pair in found.pairs]
    changed_now = sum(each.changes.wrong_to_right + each.changes.right_to_wrong for each in found.pairs)
    assert changed_now > 0
    assert 0 < html.count("data:image/png;base64,") <= 4 * 7 * len(firsts)
    assert "Settings that differ in all pairs" in html
    # What only the result file names is not opened, and the page says so.
    spec = changed(firsts[0].result.spec, desired=f"folder:{tmp_path}")
    with raises("consent-missing"):
        stream_images(firsts[0].result.model_copy(update={"spec": spec}), None)


def test_what_cannot_be_compared_is_one_sentence(folder: Path, halves: tuple[Path, Path], tmp_path: Path) -> None:
    path = file_of(folder, method="tda", corruption="snow", seed=0)
    for arguments, words in (
        ((path, folder), "Compare two result files or two folders"),
        ((path, tmp_path / "nowhere.json"), "There is no result file"),
        ((folder, tmp_path), "There are no results in"),
    ):
        code, _, said = command("compare", *map(str, arguments))
        assert (code, words in said, said.count("\n")) == (1, True, 1), said
    # Both methods on a stream in one folder, and another in the other: TDA's runs have partners, the frozen ones have
    # none.
    found = open_sides(folder, halves[1])
    assert (len(found.pairs), len(found.only_first), len(found.only_second)) == (2, 4, 0)
