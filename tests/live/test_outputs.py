"""What a stream shows and leaves behind: the folder, the page, the panel, the summary."""

from __future__ import annotations

import csv
import html
import html.parser
import io
import json
import os
import re
import statistics
import sys
import warnings
from collections.abc import Collection
from contextlib import redirect_stderr, redirect_stdout
from pathlib import Path

import pyarrow.parquet
import pytest
from PIL import Image
from rich.console import Console

import ostta
from helpers.cases import adapter, backbone, images
from helpers.errors import raises
from helpers.streaming import Done, stream
from ostta import Adapter
from ostta.cli import EXTRAS, main, stream_panel
from ostta.cli.stream_output import show_stream
from ostta.cli.stream_panel import ANSWERS, StreamPanel, show_panel
from ostta.core.banks import TRUSTED
from ostta.core.types import Decision, Verdict
from ostta.identifiers import LDA
from ostta.live.answers import open_stream
from ostta.live.digest import DOTS, EVENTS, PARTS, Digest
from ostta.live.journal import Journal
from ostta.live.memory import Memory
from ostta.live.outputs.names import folder_names, numbered, safe_name
from ostta.live.outputs.pictures import EXAMPLES, LARGEST, DrawnPictures, ExamplePictures, SortedFiles, drawn
from ostta.live.outputs.record import PictureRecord
from ostta.live.outputs.table import COLUMNS, FORMER_COLUMNS, Table, header
from ostta.live.state_keeper import AdapterSettings
from ostta.live.summary import summary
from ostta.pages.stream import MOST_ROWS, stream_page
from ostta.sources import open as open_source

NAMES = ["cat", "dog/wolf", "CON", "ship"]


def row(number: int, **content: object) -> dict:
    known = number % 3 != 0
    found = {
        "row": number,
        "image": f"{number}.png",
        "step": number,
        "label": f"class {number % 7}" if known else None,
        "known": known,
        "verdict": "reliable_desired" if known else "reliable_undesired",
        "score": 0.5 if known else 0.2,
        "threshold": 0.35,
        "best": "cat",
        "warming_up": False,
        "adapted": False,
        "ms": {"encode": 1.0, "decide": 2.0, "update": 0.5},
    }
    return {**found, **content}


@pytest.fixture(scope="module")
def photos(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("photos")
    for number, image in enumerate(images(40)):
        image.save(folder / f"{number:03}.png")
    (folder / "bad.png").write_bytes(b"nothing")
    return folder


@pytest.fixture(scope="module")
def out(photos: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("out")
    (folder / "classes.txt").write_text("\n".join(NAMES))
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # the model does not know all of the classes
        options = ["--backbone", "embedded", "--out", folder / "o", "--sort", "copy", "--draw"]
        done = stream(photos, "--classes", folder / "classes.txt", *options)
    assert (done.code, len(done.lines)) == (0, 41), done.told
    (folder / "lines.json").write_text(json.dumps(done.lines))
    (folder / "told").write_text(done.told)
    return folder


# --- tables -----------------------------------------------------------------------------------------------------------
def test_the_tables_say_what_the_lines_say(out: Path) -> None:
    lines = json.loads((out / "lines.json").read_text())
    rows = list(Table(out / "o" / "predictions.csv").rows())
    stored = pyarrow.parquet.read_table(out / "o" / "predictions.parquet")
    assert stored.column_names == list(COLUMNS)
    for line, mine, theirs in zip(lines, rows, stored.to_pylist(), strict=True):
        for name in COLUMNS:
            expected = line.get(name)
            if name == "ms" and expected is not None:
                expected = round(sum(expected.values()), 3)
            expected = (
                pytest.approx(expected)
                if isinstance(expected, float)
                else expected or (expected if expected in (0, False) else None)
            )
            assert mine.get(name) == expected, name
            assert theirs[name] == expected, name
    assert sum(line.get("error") is not None for line in lines) == 1


def test_the_tables_have_probabilities(out: Path) -> None:
    stored = pyarrow.parquet.read_table(out / "o" / "predictions.parquet").to_pylist()
    read = [found for found in stored if found["error"] is None]
    assert sum(found["undecided"] for found in read) == TRUSTED
    assert all(0 <= found["probability"] <= 1 for found in read)
    assert all(found["explanation"].endswith(".") for found in read)
    decided = [found for found in read if not found["undecided"]]
    assert all(found["known"] == (found["probability"] >= 0.5) for found in decided)


def test_a_table_from_before_there_were_probabilities_keeps_its_columns(tmp_path: Path) -> None:
    from ostta.live.journal import Progress, Row

    path = tmp_path / "p.csv"
    path.write_bytes(header(FORMER_COLUMNS))
    table = Table(path)
    progress = Progress(0, path.stat().st_size)
    table.resume(progress)
    table.add([Row(1, 1, "", None, with_probability(1, 0.9))], progress)
    assert [found["label"] for found in table.rows()] == ["cat"]
    table.write_parquet(tmp_path / "p.parquet")
    assert pyarrow.parquet.read_table(tmp_path / "p.parquet").column_names == list(FORMER_COLUMNS)


def test_the_smallest_accepted_probability_is_an_argument(photos: Path) -> None:
    files = sorted(photos.glob("0*.png"))[:36]
    done = stream(*files, "--classes", "cat,dog,ship", "--accept", "0.9", "--accept", "dog: 0.6")
    assert done.code == 0, done.told
    for line in done.lines:
        assert line["known"] == (line["probability"] >= (0.6 if line["best"] == "dog" else 0.9))
    assert {line["known"] for line in done.lines} == {True, False}
    assert any(0.5 <= line["probability"] < 0.9 and not line["known"] for line in done.lines)
    same = stream(*files, "--classes", "cat,dog,ship", "--set", 'accept=["0.9", "dog: 0.6"]')
    assert [line["known"] for line in same.lines] == [line["known"] for line in done.lines]


def test_a_state_goes_on_with_another_smallest_accepted_probability(photos: Path, tmp_path: Path) -> None:
    state = ["--state", str(tmp_path / "s.ostta"), "--out", str(tmp_path / "out"), "--classes", "cat,dog,ship"]
    files = sorted(photos.glob("0*.png"))
    assert stream(*files[:20], *state, "--accept", "0.9").code == 0
    one = stream(*files[:36], *state, "--accept", "0.6")
    assert one.code == 0, one.told
    assert all(line["known"] == (line["probability"] >= 0.6) for line in one.lines[-16:])
    assert ostta.restore(tmp_path / "s.ostta").resolved.adapter.accept == ("0.6",)
    refused = stream(*files, *state, "--accept", "cow: 0.6")
    assert refused.code == 2
    assert "which is none of the classes" in refused.told


@pytest.mark.parametrize(
    ("arguments", "told"),
    [
        (["--accept", "1.5"], "`accept` takes a probability from 0 to 1, not '1.5'."),
        (["--accept", "cow: 0.8"], "`accept` names 'cow', which is none of the classes."),
        (
            ["--accept", "0.8", "--set", "accept=0.9"],
            "`accept` is given twice, by --accept and by --set: use one of them.",
        ),
        (
            ["--accept", "0.8", "--method", "zero_shot"],
            "`accept` needs probabilities, and the identifier 'lda' has none: use 'field'.",
        ),
    ],
)
def test_an_impossible_probability_is_one_sentence(arguments: list[str], told: str, photos: Path) -> None:
    done = stream(photos, "--classes", "cat,dog", *arguments)
    assert (done.code, done.lines, done.told) == (2 if "cow" in told else 1, [], f"{told}\n")


def test_a_table_takes_every_name(tmp_path: Path) -> None:
    from ostta.live.journal import Row

    table = Table(tmp_path / "p.csv")
    odd = [
        'a,"b"',
        "a\nb",
        "a\rb",
        " a ",
        "é",
        "=1+1",
        "a\\b",
        "'=1+1",
        "''@x",
        "'tis",
        "-1.5",
        "--",
        "+x",
        "\tx",
        "\ny",
    ]
    progress = table.begin()
    for number, name in enumerate(odd, 1):
        progress = table.add([Row(number, number, "", None, row(number, image=name, label=name, known=True))], progress)
    assert progress.bytes == (tmp_path / "p.csv").stat().st_size
    assert [found["image"] for found in table.rows()] == odd
    table.write_parquet(tmp_path / "p.parquet")
    assert pyarrow.parquet.read_table(tmp_path / "p.parquet")["label"].to_pylist() == odd
    with open(tmp_path / "p.csv", newline="") as file:
        written = [cells["image"] for cells in csv.DictReader(file)]
    assert written[:7] == [*odd[:5], "'=1+1", odd[6]]
    # No spreadsheet takes a cell for a formula.
    assert not [cell for cell in written if cell.startswith(("=", "@", "+", "\t", "\n")) or cell == "--"]


def without_packages(folder: Path, packages: Collection[str], arguments: list[str]) -> tuple[int, str]:
    """Run `ostta` in a child process that cannot import `packages`; return its exit code and its standard error."""
    child = os.fork()
    if child == 0:
        code = 0
        try:
            for name in list(sys.modules):
                if name.startswith(("ostta.bench", "ostta.cli.")) or name.partition(".")[0] in packages:
                    del sys.modules[name]
            sys.modules.update(dict.fromkeys(packages))  # type: ignore[arg-type]
            sys.argv = ["ostta", *arguments]
            with (folder / "told").open("w") as told, redirect_stderr(told), redirect_stdout(io.StringIO()):
                main()
        except SystemExit as stop:
            code = stop.code if isinstance(stop.code, int) else 1
        except BaseException:
            code = 99
        finally:
            os._exit(code)
    _, status = os.waitpid(child, 0)
    return os.waitstatus_to_exitcode(status), (folder / "told").read_text()


@pytest.mark.parametrize(
    ("package", "extra", "arguments"),
    [("typer", "cli", ["bench", "ls"]), ("loky", "bench", ["bench", "run", "embedded/k"])],
)
def test_a_command_without_its_package_is_one_sentence(
    package: str, extra: str, arguments: list[str], tmp_path: Path
) -> None:
    sentence = (
        f'This command needs {package}, which is not installed: install it with `pip install "ostta[{extra}]"`.\n'
    )
    assert without_packages(tmp_path, [package], arguments) == (1, sentence)


def test_suites_are_listed_without_the_extra_bench(tmp_path: Path) -> None:
    packages = [package for package, extra in EXTRAS.items() if extra == "bench"]
    assert without_packages(tmp_path, packages, ["bench", "ls"]) == (0, "")


# --- pictures ---------------------------------------------------------------------------------------------------------
def test_every_image_is_in_the_folder_of_its_answer(out: Path, photos: Path) -> None:
    lines = json.loads((out / "lines.json").read_text())
    names = folder_names(NAMES)
    for line in lines:
        if "error" in line:
            continue
        answer = names[line["label"]] if line["known"] else "unknown"
        place = out / "o" / "sorted" / ("undecided" if line["undecided"] else answer)
        (found,) = place.glob(f"{line['row']:06d}-*")
        assert found.read_bytes() == Path(line["image"]).read_bytes()
    assert sum(path.is_file() for path in (out / "o" / "sorted").rglob("*")) == 40
    assert {path.name for path in (out / "o" / "sorted").iterdir()} <= {*names.values(), "unknown", "undecided"}
    assert len(list((out / "o" / "sorted" / "undecided").iterdir())) == TRUSTED


def test_links_lead_to_the_images(photos: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(photos)
    assert stream("003.png", "--classes", "cat", "--out", tmp_path / "o", "--sort", "link").code == 0
    (found,) = [path for path in (tmp_path / "o" / "sorted").rglob("*") if path.is_symlink()]
    assert found.resolve() == (photos / "003.png").resolve()


def test_drawn_pictures_are_bounded_and_show_the_picture(out: Path) -> None:
    assert len(list((out / "o" / "drawn").glob("*.jpg"))) == 40
    said = {"image": "x" * 5000, "label": "long " * 500, "known": True, "score": 0.4, "threshold": None}
    for size in ((1, 1), (3, 4000), (6000, 3), (4000, 3000)):
        made = drawn(Image.new("RGB", size, "red"), said)
        assert max(made.size) <= 1.3 * LARGEST
        assert made.width >= 1
    assert made.getpixel((made.width // 2, 20)) == (255, 0, 0)


def test_only_recorded_pictures_are_removed_after_a_crash(tmp_path: Path) -> None:
    from ostta.live.journal import Row

    picture, record = Image.new("RGB", (8, 8)), PictureRecord(tmp_path)
    files = SortedFiles(tmp_path / "sorted", ("cat",), "copy", record)
    pictures = DrawnPictures(tmp_path / "drawn", record)
    for number, label in ((1, "cat"), (2, None), (3, "cat"), (4, "cat")):
        for part in (files, pictures):
            part.add(Row(number, number, "", None, row(number, label=label, image="camera#7")), picture)
    cut = tmp_path / "drawn" / "000004.jpg"  # the process was killed while it wrote the last picture
    os.truncate(cut, 10)
    for name in ("sorted/cat/20231104-holiday.jpg", "drawn/20231224.jpg"):
        (tmp_path / name).write_text("mine")
    later = PictureRecord(tmp_path)
    later.check(1)
    later.forget(1)
    left = {path.relative_to(tmp_path).as_posix() for path in tmp_path.rglob("*.jpg")}
    mine = {"sorted/cat/20231104-holiday.jpg", "drawn/20231224.jpg"}
    assert left == {"drawn/000001.jpg", "sorted/cat/000001-camera#7.jpg", *mine}


def test_a_picture_that_was_replaced_is_neither_removed_nor_overwritten(tmp_path: Path) -> None:
    path = tmp_path / "sorted" / "cat" / "000001-a.jpg"
    PictureRecord(tmp_path).add(1, path, b"theirs")
    path.write_bytes(b"a picture of mine")
    later = PictureRecord(tmp_path)
    for act in (lambda: later.check(0), lambda: later.add(1, path, b"theirs")):
        with raises("output-mismatch"):
            act()
    later.forget(0)
    assert path.read_bytes() == b"a picture of mine"
    # Nothing outside of the folders of pictures is removed.
    (tmp_path / "a.txt").write_text("mine")
    (tmp_path / "pictures.jsonl").write_text('{"row": 9, "file": "sorted/../a.txt", "size": 4}\n{"row": [\n')
    PictureRecord(tmp_path).forget(0)
    assert (tmp_path / "a.txt").exists()


@pytest.mark.parametrize(
    "name",
    ["sorted/dog/20231104-holiday.jpg", "sorted/undecided/000001-000.png", "drawn/20231224.jpg", "report.html"],
)
def test_a_file_of_somebody_else_in_a_new_folder_stops_the_stream(name: str, photos: Path, tmp_path: Path) -> None:
    mine = tmp_path / "o" / name
    mine.parent.mkdir(parents=True)
    mine.write_text("mine")
    options = ["--out", tmp_path / "o", "--state", tmp_path / "s.ostta", "--sort", "copy", "--draw"]
    done = stream(photos, "--classes", "cat,dog", *options)
    assert (done.code, done.lines, str(mine) in done.told) == (1, [], True)
    assert [path for path in tmp_path.rglob("*") if path.is_file()] == [mine]
    assert mine.read_text() == "mine"


# --- output as input --------------------------------------------------------------------------------------------------
@pytest.mark.parametrize(("source", "out"), [("in", "in/out"), ("in", "in"), ("in/**/*.png", "in/out"), ("-", "in")])
def test_output_is_never_input(
    source: str, out: str, photos: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    Path("in").mkdir()
    for number in range(5):
        (Path("in") / f"z{number}.png").write_bytes((photos / f"{number:03}.png").read_bytes())
    options = [source, "--classes", "cat,dog", "--backbone", "embedded", "--sort", "copy", "--draw"]

    def process(*more: object) -> Done:
        listed = "\n".join(sorted(map(str, Path("in").rglob("*.[jp][np]g"))))
        done = stream(*options, *more, given=listed.encode())
        assert done.code == 0, done.told
        return done

    own = ["--out", out, "--state", "s.ostta"]
    assert len(process(*own).lines) == 5
    again = process(*own)
    assert (again.lines, f"`ostta stream` in '{out}'" in again.told) == ([], True)
    if source != "-":  # a list names its files
        assert len(process("--out", "in/other").lines) == 5


def test_the_own_pictures_cannot_be_named_and_those_of_another_stream_can(photos: Path, tmp_path: Path) -> None:
    first, second = tmp_path / "1", tmp_path / "2"
    assert stream(photos / "000.png", "--classes", "cat", "--out", first, "--sort", "link").code == 0
    for source in (first / "sorted", first / "sorted" / "undecided", f"{first}/sorted/*/*.png"):
        done = stream(source, "--classes", "cat", "--out", first, "--sort", "copy")
        assert (done.code, done.lines) == (1, [])
    done = stream(first / "sorted" / "undecided", "--classes", "cat", "--out", second, "--sort", "copy")
    assert (done.code, len(done.lines)) == (0, 1)


@pytest.mark.parametrize(
    ("name", "safe"),
    [
        ("cat", "cat"), ("a/b\\c", "a_b_c"), ("..", "_"), ("", "_"), ("nul", "nul_"), ("COM1.txt", "COM1.txt_"),
        ("a\0b\n", "a_b_"), ("x. .", "x"),
        ("e\u0301", "é"), ("\ud800", "\ufffd"), ("cat?*|", "cat___"), ("con.", "con_"),
    ],
)  # fmt: skip
def test_names_that_every_system_can_have(name: str, safe: str) -> None:
    assert safe_name(name) == safe


def test_no_two_classes_share_a_folder() -> None:
    names = [
        "a/b",
        "a:b",
        "A_B",
        "a_b-2",
        "unknown",
        "Unknown",
        "Undecided",
        "straße",
        "STRASSE",
        "x" * 300,
        "x" * 301,
        "猫",
    ]
    found = folder_names(names)
    assert len({name.casefold() for name in found.values()}) == len(names)
    assert not {"unknown", "undecided"} & {name.casefold() for name in found.values()}
    assert all(len(name.encode()) < 140 for name in found.values())
    assert len(numbered(10**9, "y" * 255 + ".jpeg").encode()) <= 255


# --- examples and the page --------------------------------------------------------------------------------------------
def test_examples_are_few_and_the_same_after_a_restart() -> None:
    from ostta.live.journal import Row

    def taken(first: int, last: int, kept: ExamplePictures) -> ExamplePictures:
        for number in range(first, last):
            content = row(number, label="cat", known=True)
            place = kept.choose_place(content)
            if place is not None:
                kept.add(Row(number, number, "", None, content), Image.new("RGB", (8, 8)), place)
        return kept

    whole = taken(0, 500, ExamplePictures({}, {}))
    first = taken(0, 217, ExamplePictures({}, {}))
    second = taken(217, 500, ExamplePictures(first.new(), {"cat": 217}))
    assert whole.kept == second.kept
    numbers = [example.number for example in whole.of("cat")]
    assert len(numbers) == EXAMPLES
    # Not only the first, and not only the last.
    assert numbers[0] < 250 < numbers[-1]


def html_text(text: str) -> str:
    return html.unescape(re.sub(r"<[^>]+>", " ", text))


class Seen(html.parser.HTMLParser):
    """Every tag, and the addresses that a page would load."""

    def __init__(self, text: str) -> None:
        super().__init__()
        self.open: list[str] = []
        self.loaded: list[str] = []
        self.links: list[str] = []
        self.images: list[dict] = []
        self.feed(text)

    def handle_starttag(self, tag: str, given: list) -> None:
        found = dict(given)
        self.loaded += [found[name] for name in ("src", "data", "action") if name in found]
        self.links += [found["href"]] if "href" in found else []
        if tag == "img":
            self.images.append(found)
        if tag not in ("meta", "img", "br"):
            self.open.append(tag)

    def handle_startendtag(self, tag: str, given: list) -> None:
        self.handle_starttag(tag, given)
        self.open.pop()

    def handle_endtag(self, tag: str) -> None:
        assert self.open.pop() == tag


def test_the_page_stands_alone_and_has_what_it_should(out: Path) -> None:
    text = (out / "o" / "report.html").read_text()
    seen = Seen(text)
    assert seen.open == []
    assert seen.loaded
    assert all(address.startswith("data:image/jpeg;base64,") for address in seen.loaded)
    assert all(image["alt"] for image in seen.images)
    assert text.count("<script>") == 1  # the page's own
    assert all(link.startswith("#s") for link in seen.links)
    assert "url(" not in text
    assert "http" not in text.replace("http-equiv", "")
    assert "prefers-color-scheme: dark" in text
    for heading in ("Probabilities over time", "Accepted over time", "Answers", "Examples", "Settings"):
        assert f"<h2>{heading}</h2>" in text
    # A dot an image: a line of no length.
    assert len(re.findall(r"h0(?=[M\"])", text)) == 40
    assert "unreadable</dt><dd>1</dd>" in text


def test_the_page_of_anything_is_escaped_and_bounded() -> None:
    digest, odd = Digest(), "<script>alert(1)</script>\"'&"
    for number in range(1, 60_001):
        content = row(number, label=f"{odd}{number % 900}", known=True)
        if number % 10 == 0:
            content["events"] = [{"kind": "warn", "sentence": odd, "evidence": {"drift": float(number), odd: 1.0}}]
        digest.add(content)
    text = stream_page(digest, ExamplePictures({}, {}), {"title": odd, "classes": [odd]}, Memory())
    assert Seen(text).open == []
    assert "<script>alert" not in text
    assert len(text) < 400_000
    assert f"Earlier events that are not shown: {6000 - EVENTS:,}." in text


def test_a_page_without_images() -> None:
    digest = Digest()
    digest.add({"row": 1, "image": "a.png", "error": "It is empty."})
    assert "No image has been seen yet." in stream_page(digest, ExamplePictures({}, {}), {"title": "none"}, Memory())
    digest.add(row(2))
    assert Seen(stream_page(digest, ExamplePictures({}, {}), {"title": "one"}, Memory())).open == []


def lead(text: str) -> str:
    return html_text(text.split("<header>")[1].split("</header>")[0])


def test_the_page_names_the_model_and_the_classes_that_it_was_not_trained_on(out: Path) -> None:
    top = lead((out / "o" / "report.html").read_text())
    assert "Model: embedded, with 4 classes (cat, dog/wolf, CON, ship)." in top
    assert "score field, identifier field (profile field)" in top
    assert "The embedded model was not trained on 2 of the classes (dog/wolf, CON)." in top
    assert "were classified as one of the classes" in top


def test_undecided_images_are_apart_on_the_page(out: Path) -> None:
    lines = json.loads((out / "lines.json").read_text())
    text = (out / "o" / "report.html").read_text()
    known = sum(line["known"] for line in lines if not line.get("undecided", True))
    assert lead(text).count(f"{known} of 40 images w") == 1
    assert "32 were undecided, because too few images had been seen before." in lead(text)
    assert "undecided</dt><dd>32</dd>" in text
    assert re.search(rf"accepted</dt><dd>{known / 8:.1%}</dd>", text)
    answers = html_text(text.split("<h2>Answers</h2>")[1].split("</section>")[0])
    counts = [int(count) for count in re.findall(r"\s(\d+)\s+[\d.]+%", answers)]
    assert sum(counts) == 8
    assert "Undecided (warming up)</h4>" in text
    # The dots of the undecided images have a style of their own.
    (dots,) = re.findall(r'class="dots undecided" d="([^"]*)"', text)
    assert dots.count("h0") == 32


def test_a_stream_that_only_warmed_up_decided_nothing() -> None:
    digest = Digest()
    for number in range(1, 21):
        digest.add(row(number, warming_up=True))
    assert (digest.seen, digest.decided, digest.rejected, digest.accepted_share) == (20, 0, 0, None)
    text = stream_page(digest, ExamplePictures({}, {}), {"title": "t"}, Memory())
    assert Seen(text).open == []
    assert "20 were undecided" in lead(text)
    assert summary(digest, 1.0) == [
        "20 images in 1.0 s (20.0 a second): 0 known, 0 unknown, 20 undecided (warming up)."
    ]


def with_probability(number: int, probability: float, **more: object) -> dict:
    known = probability >= 0.5
    content = {"known": known, "label": "cat" if known else None, "score": 9.0, "threshold": 0.0, "undecided": False}
    return row(number, **{**content, "probability": probability, **more})


def test_a_stream_with_probabilities_shows_them_in_place_of_scores() -> None:
    digest = Digest(accept=0.8)
    for number in range(1, 51):
        digest.add(with_probability(number, 0.98 if number % 2 else 0.03))
    digest.add(with_probability(51, 0.7, undecided=True, warming_up=False))
    assert (digest.seen, digest.undecided, digest.threshold) == (51, 1, 0.8)
    assert {value for value, _ in digest.recent} == {dot.value for dot in digest.dots} == {0.98, 0.03, 0.7}
    assert {part.threshold for part in digest.parts} == {0.8}
    assert digest.doubt == pytest.approx((25 * 0.02 + 25 * 0.03) / 50)
    text = stream_page(digest, ExamplePictures({}, {}), {"title": "t"}, Memory())
    assert "Probability that each image is known" in text
    assert "expected errors</dt><dd>2.5%</dd>" in text
    assert "the smallest probability that is accepted is 0.8" in text
    assert "Scores" not in text
    panel = drawn_panel(digest)
    assert "the last 51 probabilities, 0.00 to 1.00" in panel
    assert "▲ 0.80" in panel
    by_class = Digest(accept=None)
    by_class.add(with_probability(1, 0.9))
    assert "depends on the class" in stream_page(by_class, ExamplePictures({}, {}), {"title": "t"}, Memory())
    assert "depends on the class" in drawn_panel(by_class)


@pytest.mark.parametrize(
    ("probabilities", "warns"),
    [([0.7, 0.34] * 40, True), ([0.95, 0.02] * 40, False), ([0.7, 0.34] * 10, False), ([0.99] * 80, False)],
    ids=["unsure", "sure", "few images", "one kind"],
)
def test_a_model_that_is_unsure_of_its_answers_is_a_warning(probabilities: list[float], warns: bool) -> None:
    digest = Digest()
    for number, probability in enumerate(probabilities, 1):
        digest.add(with_probability(number, probability))
    told, text = summary(digest, 1.0), stream_page(digest, ExamplePictures({}, {}), {"title": "t"}, Memory())
    sentence = "it expects to be wrong about known or unknown for 32 % of the images."
    assert (sentence in told[-1]) is warns
    assert (sentence in html_text(text)) is warns
    assert "About half" not in text


def judged(scores: list[float], threshold: float) -> Digest:
    digest = Digest()
    for number, score in enumerate(scores, 1):
        known = score > threshold
        digest.add(row(number, score=score, known=known, label="cat" if known else None))
    return digest


def one_kind(images: int = 200) -> list[float]:
    return [statistics.NormalDist(0.3, 0.05).inv_cdf((number * 37 % images + 0.5) / images) for number in range(images)]


@pytest.mark.parametrize(
    ("scores", "threshold", "warns"),
    [
        (one_kind(), 0.3, True),  # one group cut in the middle: all of them or none of them are known
        (one_kind(), 0.32, True),
        (one_kind(), 0.25, False),  # few are rejected
        ([score + 0.4 * (number % 2) for number, score in enumerate(one_kind())], 0.5, False),  # two groups
        (one_kind(10), 0.3, False),  # too few to tell
    ],
)
def test_half_of_one_kind_rejected_is_a_warning(scores: list[float], threshold: float, warns: bool) -> None:
    digest = judged(scores, threshold)
    warning = "all of them, or none of them, may show your classes"
    assert (warning in " ".join(summary(digest, 1.0))) == warns
    assert (warning in lead(stream_page(digest, ExamplePictures({}, {}), {"title": "t"}, Memory()))) == warns


def test_a_page_counts_one_as_one() -> None:
    text = lead(stream_page(judged([0.9, 0.1], 0.5), ExamplePictures({}, {}), {"title": "t"}, Memory()))
    assert "1 of 2 images was classified as one of the classes, and 1 was classified as unknown" in text
    assert "“cat” (1 image)" in text
    digest = Digest()
    for number in range(1, MOST_ROWS + 2):
        digest.add(row(number, label=f"c{number}", known=True))
    whole = stream_page(digest, ExamplePictures({}, {}), {"title": "t"}, Memory())
    assert ">1 more class<" in whole
    first = drawn_panel(judged([0.9], 0.5))
    assert "the last 1 score, " in first


def test_the_dots_of_a_stream_of_two_kinds_in_turn_show_both() -> None:
    digest = Digest()
    for number in range(1, 10_001):
        digest.add(row(number, known=number % 2 == 0, label="cat"))
    assert digest.dot_every > 2
    assert sum(dot.known is True for dot in digest.dots) / len(digest.dots) == pytest.approx(0.5, abs=0.05)
    assert len(digest.dots) == pytest.approx(10_000 / digest.dot_every, rel=0.05)


def test_a_digest_does_not_grow_with_the_stream() -> None:
    digest = Digest()
    for number in range(1, 100_001):
        digest.add(row(number, threshold=None if 30_000 < number < 40_000 else number / 100_000))
    assert (digest.images, digest.seen, sum(part.images for part in digest.parts)) == (100_000, 100_000, 100_000)
    assert sum(part.accepted for part in digest.parts) == digest.accepted == 66_667
    assert len(digest.parts) <= PARTS
    assert len(digest.dots) <= DOTS
    assert digest.dots[-1].place > 99_000
    assert any(part.threshold is None for part in digest.parts)
    assert digest.parts[-1].threshold == pytest.approx(0.997, abs=0.004)


# --- on the terminal --------------------------------------------------------------------------------------------------
def test_the_summary_says_all(out: Path) -> None:
    told = (out / "told").read_text()
    assert re.search(
        r"41 images in [\d.]+ s \([\d.]+ a second\): \d+ known \([\d.]+ %\), \d+ unknown, 32 "
        r"undecided \(warming up\)\.\n",
        told,
    )
    assert "\n1 image could not be read.\n" in told
    digest = Digest()
    for number in range(1, 200):
        digest.add(row(number, label=f"c{number}", known=True, events=[{"kind": "roll_back"}] if number == 9 else []))
    lines = summary(digest, 10.0, skipped=1, dropped=7)
    assert "and 187 more classes" in lines[1]
    assert lines[2].startswith("1 image was judged before and left out; 7 frames dropped")
    assert lines[3] == "Events: roll back 1."


def drawn_panel(digest: Digest, width: int = 100, **more: object) -> str:
    times = iter(range(100))
    panel = StreamPanel(digest, "yard", clock=lambda: float(next(times)), **more)
    console = Console(width=width, file=io.StringIO(), force_terminal=False)
    console.print(panel.render())
    return console.file.getvalue()


def test_the_panel_shows_rate_share_classes_scores_and_guard() -> None:
    digest = Digest()
    assert "waiting for the first image" in drawn_panel(digest)
    for number in range(1, 61):
        digest.add(row(number))
    text = drawn_panel(digest, guarded=True, dropped=lambda: 3)
    for words in ("60  (60.0 a second)", "66.7 %", "class 1", "dropped", "▲ 0.35", "no problem"):
        assert words in text
    digest.add(row(61, events=[{"kind": "freeze", "sentence": "The answers crowd on one class."}]))
    assert "freeze: The answers crowd" in drawn_panel(digest, guarded=True)
    assert "guard" in drawn_panel(digest)
    assert "off" in drawn_panel(digest)
    plain = drawn_panel(digest, guarded=True, plain=True, width=60)
    assert not set(plain) & set("█▁▂▃▄▅▆▇▲●")


def screen(text: str) -> list[str]:
    """The lines that a terminal shows after `text`, which moves up and clears lines as rich does."""
    lines, at = [""], 0
    for part in re.findall(r"\x1b\[[0-9;?]*[A-Za-z]|\r|\n|[^\x1b\r\n]+", text):
        if part == "\n":
            at += 1
            lines += [""] * (at + 1 - len(lines))
        elif part == "\x1b[1A":
            at -= 1
        elif part == "\x1b[2K":
            lines[at] = ""
        elif part[0] not in "\x1b\r":
            lines[at] += part
    return [line.rstrip() for line in lines if line.strip()]


def test_answers_are_printed_below_the_panel_and_remain(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(stream_panel, "INTERVAL", 0.0)
    console = Console(width=100, height=50, file=io.StringIO(), force_terminal=True, color_system=None)
    digest, number = Digest(), 3 * ANSWERS
    with show_panel(StreamPanel(digest, "yard"), console, answers=True) as show:
        for one in range(1, number + 1):
            content = row(one, warming_up=one == 1, label="cat")
            digest.add(content)
            show(content)
        while_shown = screen(console.file.getvalue())
    images = [f"{one}.png" for one in range(1, number + 1)]
    assert [line.split()[-1] for line in while_shown if line.endswith(".png")] == images
    # The last answers stand below the panel, all others above it.
    assert while_shown[-ANSWERS - 1].startswith("╰")
    assert while_shown[number - ANSWERS].startswith("╭─ yard")
    left = screen(console.file.getvalue())
    assert [line.split()[-1] for line in left] == images
    assert left[0].startswith("undecided (cat?)")
    assert left[1].startswith("cat                         0.50 > 0.35  2.png")
    assert left[2].startswith("unknown                     0.20 < 0.35  3.png")


@pytest.mark.parametrize(
    ("content", "line"),
    [
        (row(1, label="cat", probability=0.974), "cat, 0.97                        1.png"),
        (row(3, probability=0.031), "unknown, 0.03                    3.png"),
        (row(1, label="cat", probability=0.75, undecided=True), "undecided (cat?), 0.75           1.png"),
        (
            {"image": "a\x1b[2J.png", "error": "It is\nempty."},
            "not readable               a\ufffd[2J.png: It is empty.",
        ),
        (
            {"image": "a.png", "verdict": None, "score": None, "reason": "no direction"},
            "nothing seen               a.png: no direction",
        ),
    ],
)
def test_an_answer_is_one_line_that_does_not_control_the_terminal(content: dict, line: str) -> None:
    assert stream_panel.answer_line(content).plain == line


def test_what_was_learned_is_said(out: Path) -> None:
    lines = [line for line in json.loads((out / "lines.json").read_text()) if "error" not in line]
    assert lines[-1]["memory"] == {"images": 33, "scores": 0}
    assert {line["reason"] for line in lines} == {"zero_shot trains no parameters"}
    assert "\nRemembered: 33 images; 0 updates.\n" in (out / "told").read_text()
    text = (out / "o" / "report.html").read_text()
    for name, value in (("images remembered", 33), ("scores remembered", 0), ("updates", 0)):
        assert f"{name}</dt><dd>{value}</dd>" in text
    assert "38 images, 40 scores" in drawn_panel(Digest(), memory=lambda: Memory(38, 40))


class Terminal(io.StringIO):
    encoding = "utf-8"

    def isatty(self) -> bool:
        return True


@pytest.mark.parametrize(
    ("stdout", "stderr", "panel", "lines", "moves"),
    [
        (Terminal, Terminal, True, False, True),  # the panel, and answers for a person
        (Terminal, Terminal, False, True, False),  # --no-panel
        (io.StringIO, Terminal, True, True, False),  # a pipe: what is behind it may print here too
        (Terminal, io.StringIO, True, True, False),
        (io.StringIO, io.StringIO, True, True, False),
    ],
)
def test_the_panel_never_gets_in_the_way_of_lines(
    stdout: type[io.StringIO],
    stderr: type[io.StringIO],
    panel: bool,
    lines: bool,
    moves: bool,
    photos: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    out, err = stdout(), stderr()
    monkeypatch.setenv("TERM", "xterm")
    with (
        open_stream(AdapterSettings(classes=["cat", "dog"], backbone=backbone("embedded"))) as live,
        monkeypatch.context() as patch,
    ):
        patch.setattr(sys, "stdout", out)
        patch.setattr(sys, "stderr", err)
        show_stream(live, open_source(photos / "000.png"), panel=panel)
    assert (out.getvalue().startswith('{"row": 1')) == lines
    assert ("\x1b[" in err.getvalue()) == moves
    assert ("?)" in err.getvalue()) == (not lines)  # a provisional answer
    assert "1 image in" in err.getvalue()


def test_lines_into_a_file_leave_the_terminal_to_the_panel(
    photos: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    err = Terminal()
    monkeypatch.setenv("TERM", "xterm")
    with (
        open_stream(AdapterSettings(classes=["cat", "dog"], backbone=backbone("embedded"))) as live,
        open(tmp_path / "lines", "w") as out,
        monkeypatch.context() as patch,
    ):
        patch.setattr(sys, "stdout", out)
        patch.setattr(sys, "stderr", err)
        show_stream(live, open_source(photos / "000.png"), panel=True)
    assert json.loads((tmp_path / "lines").read_text())["row"] == 1
    assert "\x1b[" in err.getvalue()


@pytest.mark.parametrize("more", [["--sort", "copy"], ["--draw"]])
def test_pictures_need_a_folder(more: list[str], photos: Path) -> None:
    done = stream(photos, "--classes", "cat", *more)
    assert (done.code, done.lines, done.told.count("\n")) == (1, [], 1)
    assert "--out" in done.told


def test_a_folder_that_cannot_be_made_leaves_no_state(photos: Path, tmp_path: Path) -> None:
    (tmp_path / "o").write_text("a file")
    done = stream(photos, "--classes", "cat", "--out", tmp_path / "o", "--state", tmp_path / "s.ostta")
    assert (done.code, done.told.count("\n")) == (1, 1)
    assert os.listdir(tmp_path) == ["o"]


def test_without_a_state_the_journal_keeps_nothing(photos: Path) -> None:
    with open_stream(AdapterSettings(classes=["cat", "dog"], backbone=backbone("embedded")), save_every=5) as live:
        for _ in live.answers(open_source(photos)):
            assert live.journal.waiting <= 5
        assert list(live.journal.rows(after=0)) == []
        assert live.journal.last == 41


# --- warming up -------------------------------------------------------------------------------------------------------
@pytest.mark.parametrize("identifier", ["lda", "daf"])
def test_the_first_images_are_warming_up(identifier: str) -> None:
    one = adapter("zero_shot", identifier)
    found = [prediction.warming_up for prediction in one.stream(images(TRUSTED + 3))]
    assert found == [True] * TRUSTED + [False] * 3
    assert not one.predict(images(1)[0]).warming_up
    one.reset()
    assert one.predict(images(1)[0]).warming_up


@pytest.mark.parametrize("identifier", ["msp", "all"])
def test_what_remembers_nothing_never_warms_up(identifier: str) -> None:
    assert not adapter("zero_shot", identifier).step(images(1)[0]).warming_up


def test_a_detector_warms_up_for_its_identifier() -> None:
    one = ostta.load(backbone("embedded"), ["cat", "dog"], "zero_shot", "adand", score="detector")
    found = [prediction.warming_up for prediction in one.stream(images(TRUSTED + 2))]
    assert found[0]
    assert not found[-1]


class Silent(LDA):
    """One from outside with banks, that says nothing of warming up."""


class Bare:
    """One from outside without banks."""

    Options = LDA.Options
    about, needs = "accepts all", None

    def __init__(self, options: object = None, *, scale: float | None = 1.0) -> None:
        self.options = options

    def peek(self, score: float, evidence: object = None) -> Decision:
        return Decision(Verdict.UNRELIABLE_DESIRED, None, None, None)

    observe = peek

    def remember(self, score: float, evidence: object = None) -> None: ...

    def reset(self) -> None: ...

    def tensors(self) -> dict:
        return {}

    def load(self, tensors: dict) -> None: ...


class Outspoken(Bare):
    warming_up = True


@pytest.mark.parametrize(("identifier", "young"), [(Silent, True), (Bare, False), (Outspoken, True)])
def test_identifiers_from_outside(identifier: type, young: bool) -> None:
    one = ostta.load(backbone("embedded"), ["cat", "dog"], "zero_shot", identifier)
    assert one.step(images(1)[0]).warming_up is young


def test_a_restored_state_is_as_old_as_it_was(tmp_path: Path) -> None:
    one = ostta.load(backbone("embedded"), ["cat", "dog"])
    for image in images(TRUSTED):
        one.step(image)
    one.save(tmp_path / "s.ostta")
    assert not Adapter.restore(tmp_path / "s.ostta").predict(images(1)[0]).warming_up


def test_a_journal_can_be_read_while_nothing_waits(tmp_path: Path) -> None:
    journal = Journal.opened(tmp_path / "j")
    journal.resume(tmp_path / "s.ostta", 0, "")
    journal.add(1, "a", Path("a.png"), {"image": "a.png"})
    assert list(journal.rows(after=0)) == []
    journal.write(1)
    (only,) = journal.rows(after=0)
    assert (only.key, only.path, only.content) == ("a", Path("a.png"), {"row": 1, "image": "a.png"})
