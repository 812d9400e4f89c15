"""Pages, from results and records made by hand on images that ship.

What they say, that they are safe, and that they fit.
"""

from __future__ import annotations

import json
import re
import shutil
from html.parser import HTMLParser
from pathlib import Path

import numpy as np
import pyarrow
import pyarrow.parquet
import pytest

from helpers.errors import raises
from helpers.results import made
from ostta import Error, Prediction, Verdict
from ostta.bench.collected import collect_results, folder_results
from ostta.bench.figures import SuiteFigures
from ostta.bench.naming import run_command
from ostta.bench.result import Result
from ostta.bench.spec import RunSpec
from ostta.bench.stream import Composed, compose
from ostta.bench.suite import Suite, expand, read_suite
from ostta.evaluation.loop import Records
from ostta.pages.demo import demo_page
from ostta.pages.images import SeenImages, seen_images, stream_images, uncorrupted
from ostta.pages.parts import Axis, Chart, Page, Picture, Section, Text, html_page
from ostta.pages.suite import suite_report

ODD = "<script>alert(1)</script>\"'& {{ 7 * 7 }}"
CLASSES = [ODD, "automobile", "bird", "cat", "deer", "dog", "frog", "horse", "ship", "truck"]
SUITE = f"""
title = {json.dumps(ODD)}
what = "mine"
labels = []
metrics = ["auroc", "acc_desired", "hm"]
rows = ["method"]
columns = ["stream"]
limit = 20
records = true
[base]
classes = {json.dumps(CLASSES)}
undesired = "sample:mnist"
[axes]
method = ["zero_shot", "rosita"]
[axes.stream]
"snow {ODD.replace('"', "").replace("'", "")}" = {{ desired = "sample:cifar10c" }}
"a name of a stream that is too long for a narrow window" = {{ desired = "sample:cifar10c", corruption = "fog" }}
"""


def answers(spec: RunSpec, composed: Composed) -> dict[str, np.ndarray]:
    """The frozen row names 10 of 20 desired images and rejects all undesired ones.

    ROSITA names 15, and rejects 16 of 20.
    """
    samples = [(sample.label, sample.source, sample.index) for sample in composed.stream]
    labels = np.array([label for label, _, _ in samples])
    right, rejected = (10, 20) if spec.method == "zero_shot" else (15, 16)
    known = np.zeros(len(labels), bool)
    known[np.flatnonzero(labels >= 0)[:right]] = True
    known[np.flatnonzero(labels < 0)[rejected:]] = True
    return {
        "label": labels, "score": np.where(known, 0.6, 0.2) + np.arange(len(labels)) / 1000,
        "threshold": np.full(len(labels), 0.4),
        "known": known, "index": np.maximum(labels, 0), "source": np.array([source for _, source, _ in samples]),
        "number": np.array([number for _, _, number in samples]), "domain": np.zeros(len(labels), np.int64),
    }  # fmt: skip


def result_of(spec: RunSpec, composed: Composed, found: dict[str, np.ndarray], **more: object) -> Result:
    desired = found["label"] >= 0
    acc_d, acc_u = 100 * float(found["known"][desired].mean()), 100 * float((~found["known"][~desired]).mean())
    figures = {
        "auroc": 90.0,
        "fpr95": 20.0,
        "acc_desired": acc_d,
        "acc_undesired": acc_u,
        "hm": 2 * acc_d * acc_u / (acc_d + acc_u),
    }
    stream = {
        "hash": composed.stream.hash,
        "identity": composed.stream.identity,
        "desired": composed.desired,
        "undesired": composed.undesired,
        "seed": spec.seed,
    }
    counts = {"desired": int(desired.sum()), "undesired": int((~desired).sum())}
    return made(spec, None, metrics=figures, stream=stream, counts=counts, **more)  # fmt: skip


@pytest.fixture(scope="module")
def suite(tmp_path_factory: pytest.TempPathFactory) -> Suite:
    path = tmp_path_factory.mktemp("suite") / "mine.toml"
    path.write_text(SUITE)
    return read_suite(path, str(path))


@pytest.fixture(scope="module")
def folder(suite: Suite, tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("results")
    for place, cell in enumerate(expand(suite)):
        composed = compose(cell.spec, None)
        found = answers(cell.spec, composed)
        pyarrow.parquet.write_table(pyarrow.table(found), folder / f"{place}.parquet")
        result_of(cell.spec, composed, found, records=f"{place}.parquet").write(folder / f"{place}.json")
    return folder


@pytest.fixture(scope="module")
def page(suite: Suite, folder: Path) -> str:
    return suite_report(SuiteFigures(collect_results(suite, folder)), lambda result: seen_images(result, None))


@pytest.fixture(scope="module")
def demo() -> str:
    """The page of the demo from runs that nothing was computed for."""
    runs = []
    for method in ("zero_shot", "rosita"):
        spec = RunSpec(method=method, desired="sample:cifar10c", undesired="sample:mnist", limit=20, classes=CLASSES)
        composed = compose(spec, None)
        found, records = answers(spec, composed), Records()
        for place, sample in enumerate(composed.stream):
            known, index = bool(found["known"][place]), int(found["index"][place])
            verdict = Verdict.RELIABLE_DESIRED if known else Verdict.RELIABLE_UNDESIRED
            score = float(found["score"][place])
            label = CLASSES[index] if known else None
            records.add(
                sample, Prediction(label, index, known, score, 0.4, 0.6, 0.2, verdict, method == "rosita", None, None)
            )
        runs.append((result_of(spec, composed, found), records))
    return demo_page(runs, SeenImages(composed.stream, tuple(CLASSES), uncorrupted("sample:cifar10c", None)))


class Read(HTMLParser):
    """The tags of a page, with what a browser would fetch, run or jump to."""

    def __init__(self, text: str) -> None:
        super().__init__()
        self.open: list[str] = []
        self.tags: list[str] = []
        self.ids: list[str] = []
        self.links: list[str] = []
        self.fetched: list[str] = []
        self.handlers: list[str] = []
        self.images: list[dict[str, str | None]] = []
        self.unnamed: list[str] = []
        self.feed(text)

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        given = dict(attrs)
        self.tags.append(tag)
        self.ids += [given["id"]] if given.get("id") else []
        self.links += [str(given["href"])] if "href" in given else []
        self.fetched += [str(given[name]) for name in ("src", "srcset", "action", "data") if name in given]
        self.handlers += [name for name in given if name.startswith("on")]
        if tag == "img":
            self.images.append(given)
        if tag == "svg" and given.get("aria-hidden") != "true" and "svg" not in self.open:
            self.unnamed.append(str(given))
        if tag not in ("meta", "img", "br", "input"):
            self.open.append(tag)

    def handle_startendtag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.handle_starttag(tag, attrs)
        self.open.pop()

    def handle_endtag(self, tag: str) -> None:
        assert self.open.pop() == tag


def words(page: str) -> str:
    """The text of the body."""
    body = re.sub(r"<(style|script|title)>.*?</\1>", "", page, flags=re.DOTALL)
    return " ".join(re.sub(r"<[^>]+>", " ", body).split())


def test_the_lead_has_the_result_its_interval_the_images_and_the_seeds(suite: Suite, folder: Path) -> None:
    # Frozen: Acc_D 50, Acc_U 100, HM 66.67. ROSITA: 75 and 80, HM 77.42; +10.75 on each of the two streams of 40
    # images.
    page = suite_report(SuiteFigures(collect_results(suite, folder)))
    lead = words(re.search(r'<p class="lead">(.*?)</p>', page, re.DOTALL)[1])
    assert lead.startswith(
        "Over 2 streams, rosita has the largest gain over the frozen row: HM 77.42 against 66.67, +10.75 "
        "(95 % interval "
    )
    assert re.search(r"interval ([+-]\d+\.\d\d) to ([+-]\d+\.\d\d) over images; (not )?significant\)", lead)
    low, high = map(float, re.search(r"interval (\S+) to (\S+)", lead).groups())
    assert low < 10.75 < high
    assert "N = 80 images, seed 0. Of 2 differences to the frozen row on 2 streams, " in lead
    # Each verdict of the lead is that of the interval, and of the mark in the table.
    assert ("not significant" in lead) == (
        low <= 0 or ("+10.75*" not in page and "are significantly better" not in lead)
    )


def test_a_row_behind_the_frozen_one_is_not_called_ahead(suite: Suite, folder: Path, tmp_path: Path) -> None:
    for path in folder.iterdir():
        shutil.copy(path, tmp_path / path.name)
    for path in tmp_path.glob("*.json"):
        content = json.loads(path.read_text())
        content["records"] = None
        if content["spec"]["method"] == "rosita":
            content["metrics"]["hm"] = 60.0
        path.write_text(json.dumps(content))
    page = suite_report(SuiteFigures(collect_results(suite, tmp_path)))
    said = (
        "no row is better than the frozen row, and rosita is the closest: HM 60.00 against 66.67, -6.67 (no interval, "
        "because 4 of 4 runs kept no records)."
    )
    assert said in words(page)


def test_the_overview_comes_before_any_table_and_hm_first_in_each(page: str) -> None:
    assert page.index('class="intervals"') < page.index("<table")
    assert page.index("Mean over 2 streams") < page.index("<table")
    for table in re.findall(r"<thead>(.*?)</thead>", page, re.DOTALL):
        assert re.findall(r'<th scope="col">(.*?)</th>', table)[1:3] == ["HM\u00a0↑", "Δ HM"]
    # One stream a table.
    assert page.count("<table>") == 2
    assert "in the paper" not in page


def test_images_with_their_scores_where_they_changed_sides(page: str, demo: str) -> None:
    for text in (page, demo):
        assert re.search(r"Wrong with \w+, right with rosita: 5 images of 40", text)
        assert re.search(r"Right with \w+, wrong with rosita: 4 images of 40", text)
    read = Read(page)
    # At most six of a kind; wrong with both are the five desired images that neither accepted.
    assert len(read.images) == 2 * (5 + 4 + 6 + 5)
    # What it shows, then both answers with score and threshold.
    shot = (
        r"<span>(\w+)</span>\s*<span>zero_shot: unknown, 0.2\d &lt; 0.40</span>\s*<span>rosita: (\w+), "
        r"0.6\d &gt; 0.40</span>"
    )
    found = re.findall(shot, page)
    assert len(found) > 3
    assert all(truth == answer for truth, answer in found)
    # As the stream showed them, before that, and the undesired ones.
    assert "Known images without corruption" in demo
    assert "The same images in the stream: snow, severity 5" in demo


def test_without_the_data_a_sentence_stands_in_the_place_of_images(suite: Suite, folder: Path) -> None:
    def missing(result: Result) -> SeenImages:
        raise Error("The data are elsewhere.")

    text = suite_report(SuiteFigures(collect_results(suite, folder)), missing)
    assert Read(text).images == []
    assert words(text).count("The data are elsewhere.") == 1
    spec = expand(suite)[0].spec
    composed = compose(spec, None)
    result = result_of(spec, composed, answers(spec, composed))
    changed = result.model_copy(update={"stream": result.stream.model_copy(update={"hash": "other"})})
    with raises("stream-changed"):
        seen_images(changed, None)


@pytest.mark.parametrize(("split", "warned"), [("", True), (":train", False)])
def test_a_choice_by_a_test_stream_is_warned_of(split: str, warned: bool, tmp_path: Path) -> None:
    for number, rate in enumerate((1e-3, 3e-3)):
        spec = RunSpec(method="rosita", options={"lr": rate}, desired=f"cifar10c{split}", undesired=f"mnist{split}")
        made(spec, 50.0 + number).write(tmp_path / f"{number}.json")
    text = suite_report(SuiteFigures(folder_results(tmp_path)))
    said = words(text)
    assert "2 rows of rosita differ only in lr. The best HM: " in said
    assert re.search(r"The best HM: [^.]*lr=0\.003", said)
    assert ("compared on test images (cifar10c under snow 5 against mnist)" in said) == warned
    assert ('class="warning"' in text) == warned


def test_a_page_of_a_folder_opens_no_set_that_only_a_result_file_names(folder: Path, tmp_path: Path) -> None:
    result = made(RunSpec(desired=f"folder:{tmp_path}", undesired="sample:mnist"), 50.0)
    with raises("consent-missing"):
        stream_images(result, None)
    with raises("images-missing"):
        seen_images(made(RunSpec(desired="hub:someone/something"), 50.0), None)
    text = suite_report(SuiteFigures(folder_results(folder)), lambda result: stream_images(result, None))
    assert len(Read(text).images) == 2 * (5 + 4 + 6 + 5)
    assert "ostta bench report: a folder of results" in text


def test_pages_are_safe_and_stand_alone(page: str, demo: str) -> None:
    for text in (page, demo):
        read = Read(text)
        assert read.open == []
        assert read.tags.count("script") == 1
        assert read.handlers == []
        assert "<script>alert" not in text
        assert "&lt;script&gt;alert(1)&lt;/script&gt;" in text
        assert "{{ 7 * 7 }}" in text
        assert not re.search(r"https?:|@import|url\(", text)
        assert all(
            address.startswith(("data:image/png;base64,", "data:image/jpeg;base64,")) for address in read.fetched
        )
        assert "Content-Security-Policy" in text
        assert len(text) < 1_500_000


def test_everything_that_is_seen_has_words_for_those_who_do_not_see(page: str, demo: str) -> None:
    for text in (page, demo):
        read = Read(text)
        assert read.images
        assert all(image.get("alt") for image in read.images)
        assert read.unnamed == []
        assert all(re.findall(r'<div class="chart" role="img" aria-label="([^"]*)"', text))


def test_contents_lead_to_what_is_there(page: str, demo: str) -> None:
    for text in (page, demo):
        read = Read(text)
        assert len(read.links) > 5
        assert len(set(read.ids)) == len(read.ids)
        assert {link.removeprefix("#") for link in read.links} <= set(read.ids)
        assert {name for name in read.ids if "-" not in name} <= {link.removeprefix("#") for link in read.links}
    for heading in (
        "The stream",
        "The frozen classifier",
        "Changes by adaptation: rosita",
        "Next steps",
    ):
        assert f"<h2>{heading}</h2>" in demo


def test_an_empty_section_is_left_out() -> None:
    text = html_page(
        Page("t", "k", ["l"], (Section("Empty"), Section("Full", [Text("x")]), Section("Also", (), [Section("no")])))
    )
    assert "<h2>Full</h2>" in text
    assert "Empty" not in text
    assert "Also" not in text


def test_a_chart_has_gaps_and_stays_inside_its_axes() -> None:
    chart = Chart(Axis(0, 10), Axis(0, 100), height=100)
    chart.line([(0, 0), (5, 50), (6, float("nan")), (7, 200), (10, 100)], "known")
    drawn = chart.svg(ODD)
    assert 'd="M0 100L500 50M700 0L1000 0"' in drawn
    assert "<script" not in drawn
    assert Axis(-1e308, 1e308).shown() == Axis(0, float("inf")).shown() == Axis(float("nan"), 1).shown() == []
    assert [text for _, text in Axis(0.19, 0.41).shown()] == ["0.20", "0.25", "0.30", "0.35", "0.40"]
    assert Read(html_page(Page("t", "k", [], [Section("s", [Picture(drawn, "p")])]))).open == []


@pytest.mark.parametrize(
    "fields",
    [
        {"method": "zero_shot", "desired": "sample:cifar10c", "undesired": "sample:mnist", "limit": 40, "seed": 3},
        {
            "method": "rosita",
            "options": {"lr": 1e-4, "losses": ["re", "d"]},
            "desired": "cifar100c",
            "corruption": "fog",
            "severity": 2,
        },
        {"method": "zero_shot", "score": "dart", "identifier": "daf", "profile": "field", "guard": True},
        {
            "method": "tda",
            "scenario": {"kind": "frequent", "images": 250, "corruptions": ["snow", "fog"]},
            "ratio": 0.5,
        },
        {"method": "rosita", "undesired": None, "ratio": 0.0, "classes": ["a cat", "b"], "dtype": "bfloat16"},
        {"method": "zero_shot", "identifier": "msp", "scenario": {"kind": "covered", "images": 20}},
    ],
)
def test_a_command_asks_for_the_same_run(fields: dict, monkeypatch: pytest.MonkeyPatch) -> None:
    """The command line, up to where the run would begin, gives the spec again."""
    import shlex

    from typer.testing import CliRunner

    from ostta.cli.app import app

    asked = []

    def prepare(spec: RunSpec, *_: object, **__: object) -> None:
        asked.append(spec)
        raise Error("enough")

    monkeypatch.setattr("ostta.cli.run_one.prepare", prepare)
    spec = RunSpec(**fields)
    command = run_command(spec)
    CliRunner().invoke(app, shlex.split(command)[1:])
    assert asked == [spec]


def test_what_only_a_suite_can_ask_for_has_no_command() -> None:
    domains = {"kind": "domains", "domains": [{"desired": "cifar10"}, {"desired": "cifar10c"}]}
    assert run_command(RunSpec(scenario=domains)) is None
    assert run_command(RunSpec(scenario={"kind": "smooth", "cells": 5})) is None
    assert run_command(RunSpec(classes=["a, b", "c"])) is None


CHROMIUM = next(
    (path for name in ("chromium", "chromium-browser", "google-chrome") if (path := shutil.which(name))), None
)


@pytest.mark.skipif(CHROMIUM is None, reason="no Chromium is installed")
def test_pages_fit_a_narrow_window_and_filter_by_method(page: str, demo: str, tmp_path: Path) -> None:
    sync = pytest.importorskip("playwright.sync_api", reason="Playwright is not installed")
    arguments = (
        "--no-sandbox --disable-gpu --disable-quic --no-first-run --disable-background-networking "
        "--disable-component-update --disable-sync"
    )
    too_wide = (
        "[...document.querySelectorAll('body *')].filter(e => e.getBoundingClientRect().right > innerWidth + "
        "1).map(e => e.outerHTML.slice(0, 90))"
    )
    with sync.sync_playwright() as play:
        browser = play.chromium.launch(executable_path=CHROMIUM, args=arguments.split())
        for name, text in (("suite", page), ("demo", demo)):
            (tmp_path / f"{name}.html").write_text(text)
            window, said = browser.new_page(), []
            window.on("console", lambda message, said=said: said.append(message.text))
            window.goto((tmp_path / f"{name}.html").as_uri())
            for width in (420, 1280):
                window.set_viewport_size({"width": width, "height": 900})
                assert window.evaluate("document.documentElement.scrollWidth") <= width
                assert window.evaluate(too_wide) == []
            # The policy of the page lets its own script run, and nothing else.
            assert said == []
            assert window.locator(".command button").count() == window.locator(".command").count() > 0
            if name == "suite":
                rows = window.locator("[data-method=rosita]")
                assert rows.count() > 4
                window.locator(".filter input[value=rosita]").uncheck()
                assert not any(row.is_visible() for row in rows.all())
                assert window.locator("[data-method=zero_shot]").first.is_visible()
        browser.close()
