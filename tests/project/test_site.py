"""The pages.

Links lead somewhere, commands exist, examples run, tables are those of the tools, the site builds and is
self-contained.
"""

from __future__ import annotations

import importlib.util
import os
import re
import subprocess
import sys
from functools import cache
from html.parser import HTMLParser
from pathlib import Path
from typing import Any

import pytest
from typer.main import get_command

import ostta
from helpers.browsing import BROWSER, FLAGS
from helpers.documentation import DOCS, PAGES, ROOT, anchors, blocks, commands, links
from ostta.backbones.embedded import load_embedded
from ostta.bench.suite import expand, read_suite
from ostta.cli.app import app
from ostta.config.declare import list_options
from ostta.config.resolve import list_options_classes
from ostta.data import open_dataset

shared = cache(load_embedded)


def _title(page: Path) -> str:
    return page.relative_to(ROOT).as_posix()


def _tool(name: str):
    spec = importlib.util.spec_from_file_location(name, ROOT / "tools" / f"{name}.py")
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    sys.modules[name] = module
    spec.loader.exec_module(module)
    return module


# --- without a build --------------------------------------------------------------------------------------------------
@pytest.mark.parametrize("page", PAGES, ids=_title)
def test_links_lead_to_files_and_headings_that_exist(page: Path) -> None:
    for link in links(page):
        if link.startswith(("http://", "https://")):
            continue
        target, _, anchor = link.partition("#")
        file = (page.parent / target).resolve() if target else page
        assert file.exists(), link
        assert file.is_relative_to(ROOT), link
        if anchor:
            assert anchor in anchors(file), link


@pytest.mark.parametrize("page", PAGES, ids=_title)
def test_commands_and_their_options_exist(page: Path) -> None:
    for words in commands(page):
        command, rest = get_command(app), list(words)
        while hasattr(command, "commands") and rest and not rest[0].startswith("-"):
            assert rest[0] in command.commands, words
            command = command.commands[rest.pop(0)]
        known = {name for each in command.params for name in (*each.opts, *each.secondary_opts)} | {"--help"}
        assert {word.partition("=")[0] for word in rest if word.startswith("--")} <= known, words


@pytest.mark.parametrize("name", ["tutorial.md", "comparing.md"])
def test_examples_run_and_print_what_they_say(
    name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr("ostta.backbones.load_embedded", shared)
    monkeypatch.chdir(tmp_path)
    names: dict[str, object] = {}
    for example in blocks(DOCS / name, "python"):
        exec(compile(example, name, "exec"), names)
        said = re.findall(r"^print\(.*\)  # (.*)$", example, flags=re.MULTILINE)
        printed = capsys.readouterr().out
        assert printed.splitlines() == said if said else printed or "print(" not in example


def test_the_path_to_a_table_of_one_s_own_is_short_and_its_suite_can_be_read(tmp_path: Path) -> None:
    page = DOCS / "your-folder.md"
    typed = [text for text in blocks(page, "") if re.match(r"(?:pip install|ostta|cat >) ", text)]
    (suite,) = (re.search(r"<<'END'\n(.*?)END\n", text, flags=re.DOTALL) for text in typed if text.startswith("cat >"))
    assert suite is not None
    assert sum(1 if text.startswith("cat >") else len(text.splitlines()) for text in typed) == 8
    (tmp_path / "animals.toml").write_text(suite[1], encoding="utf-8")
    cells = expand(read_suite(tmp_path / "animals.toml", str(tmp_path / "animals.toml")))
    assert [cell.row for cell in cells] == [("frozen",), ("rosita",), ("field",)]
    assert all(len(cell.spec.undesired_classes) == 6 and cell.spec.backbone == "photos" for cell in cells)


def test_the_samples_that_the_page_of_data_sets_names_ship() -> None:
    page = (DOCS / "datasets.md").read_text(encoding="utf-8")
    named = set(re.findall(r"`(sample:\w+)`", page)) - {"sample:mnistc"}
    assert f"{sum(len(open_dataset(name)) for name in named):,} sample images" in page


def test_the_hours_on_a_gpu_are_those_of_the_model() -> None:
    hours = _tool("gpu_hours")
    page = hours.PAGE.read_text(encoding="utf-8")
    assert hours.put_in(page) == page, "python tools/gpu_hours.py --write"


def test_the_model_of_the_hours_counts_as_it_says() -> None:
    hours = _tool("gpu_hours")
    base, tower = "openai/clip-vit-base-patch16", hours.TOWERS["openai/clip-vit-base-patch16"]
    # The operations of ViT-B/16 that are usually stated: 17.6 billion products and sums.
    assert tower.operations == pytest.approx(35.2e9, rel=0.01)
    # Where passes must wait, a frozen step is one of them, and ROSITA's mean is 0.5 * 1 + 0.25 * 2 + 0.25 * 5.
    assert hours.seconds("zero_shot", base, 10, 1.0) == 1.0
    assert hours.seconds("rosita", base, 10, 1.0) == 2.25
    # Where none waits, arithmetic counts: TPT on half of the images, one pass on the other half.
    tpt, frozen = (hours.forwards("ViT-B/16", what, 10) for what in ("tpt", "zero_shot"))
    expected = (tpt + frozen) / 2 * tower.operations / hours.RATE
    assert hours.seconds("tpt", base, 10, 0.0) == pytest.approx(expected)
    # Between two numbers of classes lies what is between their figures.
    ends = [hours.forwards("ViT-B/16", "tpt", classes) for classes in (100, 1000)]
    assert hours.forwards("ViT-B/16", "tpt", 550) == pytest.approx(sum(ends) / 2)


def test_every_public_name_of_ostta_has_its_place_in_the_reference() -> None:
    shown = set(
        re.findall(r"^::: ([\w.]+)$", "\n".join(page.read_text() for page in DOCS.glob("reference/*.md")), re.M)
    )
    classes = {name for name in ostta.__all__ if isinstance(getattr(ostta, name), type) or name == "load"}
    missing = {f"ostta.{name}" for name in classes} - shown
    # It is shown where it is defined.
    assert missing == {"ostta.StreamPool"}
    assert "ostta.live.StreamPool" in shown


# --- the built site ---------------------------------------------------------------------------------------------------
@pytest.fixture(scope="module")
def site(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The site, built strictly.

    A page that is missing in the contents, a link or an anchor that leads nowhere ends the build.
    """
    folder = tmp_path_factory.mktemp("site")
    paths = os.pathsep.join([str(ROOT / "src"), os.environ.get("PYTHONPATH", "")])
    built = subprocess.run(
        [sys.executable, "-m", "mkdocs", "build", "--strict", "--quiet", "--site-dir", str(folder)],
        cwd=ROOT, capture_output=True, text=True, check=False,
        env=os.environ | {"PYTHONPATH": paths, "NO_MKDOCS_2_WARNING": "1"},
    )  # fmt: skip
    assert built.returncode == 0, built.stdout + built.stderr
    return folder


class Loaded(HTMLParser):
    """What a browser fetches by itself when it shows a page."""

    def __init__(self) -> None:
        super().__init__()
        self.addresses: list[str] = []
        self.styles: list[str] = []

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        given = dict(attrs)
        fetched = {
            "script": "src",
            "img": "src",
            "iframe": "src",
            "source": "src",
            "video": "src",
            "audio": "src",
            "object": "data",
        }
        if tag in fetched:
            self.addresses += [given[fetched[tag]] or ""] if fetched[tag] in given else []
        if tag == "link" and given.get("rel") not in ("canonical", "next", "prev"):
            self.addresses.append(given.get("href") or "")
        self.styles.append(given.get("style") or "")


def test_nothing_on_the_site_is_loaded_from_elsewhere(site: Path) -> None:
    pages = sorted(site.rglob("*.html"))
    assert len(pages) > 30
    for page in pages:
        seen = Loaded()
        text = page.read_text(encoding="utf-8")
        seen.feed(text)
        assert seen.addresses, page
        for address in seen.addresses:
            assert not re.match(r"(?:[a-z]+:)?//", address), (page.name, address)
            assert page.name == "404.html" or (page.parent / address.partition("#")[0].partition("?")[0]).exists(), (
                page.name,
                address,
            )
        # Diagrams would be drawn by a script that is fetched from outside.
        assert 'class="mermaid"' not in text
    for style in site.rglob("*.css"):
        assert not re.search(r"url\(\s*[\"']?(?:https?:)?//|@import", style.read_text(encoding="utf-8")), style.name


@pytest.mark.slow  # a browser is started; the next test sees that what the search needs is there
@pytest.mark.skipif(BROWSER is None, reason="Debian's chromium is not installed")
def test_the_search_works_on_a_page_that_is_opened_as_a_file(site: Path) -> None:
    playwright = pytest.importorskip("playwright.sync_api", reason="Playwright is not installed")
    with playwright.sync_playwright() as started:
        browser = started.chromium.launch(executable_path=BROWSER, args=FLAGS)
        page = browser.new_page()
        page.goto((site / "reference" / "cli.html").as_uri())
        query = page.locator("input[name=query]")
        query.click()
        query.press_sequentially("threshold")
        found = page.locator(".md-search-result__item a").first
        found.wait_for(state="attached", timeout=30_000)
        assert found.get_attribute("href").startswith(site.as_uri())
        browser.close()


def test_the_search_needs_no_server(site: Path) -> None:
    assert (site / "search" / "search_index.js").read_text(encoding="utf-8").startswith("var __index = {")
    for page in site.rglob("*.html"):
        text = page.read_text(encoding="utf-8")
        # It replaces `Worker` before the theme makes one.
        assert 0 < text.find("iframe-worker.js") < text.find("javascripts/bundle"), page.name


def test_the_reference_has_every_command_and_every_option(site: Path) -> None:
    text = (site / "reference" / "cli.html").read_text(encoding="utf-8")

    def every(command: Any, path: str) -> None:
        assert f">{path}<" in text
        for name, inner in getattr(command, "commands", {}).items():
            every(inner, f"{path} {name}")

    every(get_command(app), "ostta")
    tables = (site / "reference" / "options.html").read_text(encoding="utf-8")
    for owner, declared in list_options_classes().items():
        for one in list_options(declared):
            assert f"<code>{one.name}</code>" in tables, (owner, one.name)


def test_examples_of_docstrings_are_code_on_the_site(site: Path) -> None:
    text = (site / "reference" / "ostta.html").read_text(encoding="utf-8")
    assert "<blockquote>" not in text
    assert '<span class="gp">&gt;&gt;&gt; </span>' in text


def test_links_out_of_the_docs_are_words_on_the_site(site: Path) -> None:
    text = (site / "embedded-model.html").read_text(encoding="utf-8")
    assert "model card (<code>src/ostta/backbones/embedded/MODEL_CARD.md</code> in the repository)" in text
