"""Draw the pictures of README.md and docs/ with the Chromium of this machine, from the included models and images.

    python tools/draw_pages.py demo          demo.jpg: photographs of `ostta demo photos` with two answers each
    python tools/draw_pages.py suite         report.png: page of the suite tools/report_picture.toml
    python tools/draw_pages.py stream        stream-report.png: page of `ostta stream`
    python tools/draw_pages.py dashboard     dashboard-*.png: a server with six sessions

report.png and stream-report.png show the head of a page, on a computer, and on a phone with dark colours.
"""

from __future__ import annotations

import argparse
import base64
import io
import shutil
import subprocess
import sys
import tempfile
import threading
import time
from html import escape
from pathlib import Path
from typing import Any

from PIL import Image

import ostta
from ostta.client import Client
from ostta.data import open_dataset

DOCS = Path(__file__).resolve().parents[1] / "docs"
WIDE, NARROW, HEIGHT = 1280, 420, 1560
# Places of the stream that the picture shows: clean photographs, and photographs shortly after the snow begins.
CLEAN, SNOWY = range(192, 198), range(208, 214)
STYLE = """
body { margin: 0; font: 15px/1.4 system-ui, "DejaVu Sans", sans-serif; color: #17202e; background: white; }
table { width: 980px; padding: 6px 0; border-spacing: 8px 2px; table-layout: fixed; white-space: nowrap; }
th { width: 52px; text-align: left; font-weight: inherit; }
caption { text-align: left; font-weight: 700; padding: 0 8px; }
img { width: 100%; height: 136px; object-fit: cover; border-radius: 6px; display: block; }
.ostta { font-weight: 700; font-size: 14px; }
.right { color: #17653a; }
.wrong { color: #b3261e; }
"""


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("picture", choices=PICTURES)
    draw = PICTURES[parser.parse_args().picture]
    from playwright.sync_api import sync_playwright

    with sync_playwright() as play, tempfile.TemporaryDirectory() as folder:
        browser = play.chromium.launch(executable_path=shutil.which("chromium"), args=["--no-sandbox", "--disable-gpu"])
        draw(browser, Path(folder))
        browser.close()


def draw_demo(browser: Any, folder: Path) -> None:
    page = browser.new_page(viewport={"width": 980, "height": 600}, device_scale_factor=1.6)
    page.set_content(demo_tables())
    _shot(page.locator("#demo")).save(DOCS / "demo.jpg", quality=88, subsampling=0, optimize=True)


def demo_tables() -> str:
    """Run the stream of `ostta demo photos` and return its photographs with both answers as HTML."""
    from ostta.bench.demo import DEMOS
    from ostta.bench.run import carry_out, prepare

    frozen, _, field = DEMOS["photos"].specs(None, seed=0)
    answers = {}
    for name, spec in {"frozen": frozen, "ostta": field}.items():
        prepared = prepare(spec, None)
        answers[name] = carry_out(prepared)[1].to_pandas()
    classes = prepared.adapter.classes

    def picture(step: int) -> str:
        buffer = io.BytesIO()
        next(iter(prepared.stream.starting_at(step))).image.convert("RGB").save(buffer, "PNG")
        return f'<td><img src="data:image/png;base64,{base64.b64encode(buffer.getvalue()).decode()}">'

    def answer(row: Any) -> str:
        text = classes[row["index"]] if row["known"] else "unknown"
        right = row["index"] == row["label"] if row["known"] else row["label"] < 0
        chance = f" {row['probability']:.2f}" if "probability" in row else ""
        return f'<td class="{"right" if right else "wrong"}">{"✓" if right else "✗"} {escape(text)}{chance}'

    def table(title: str, steps: range) -> str:
        rows = "".join(
            f'<tr class="{name}"><th>{name}{"".join(answer(records.loc[step]) for step in steps)}'
            for name, records in answers.items()
        )
        return f"<table><caption>{title}</caption><tr><th>{''.join(map(picture, steps))}{rows}</table>"

    clean = table("Photographs 193 to 198 of the stream", CLEAN)
    return f'<style>{STYLE}</style><div id="demo">{clean}{table("Photographs 209 to 214, in snow", SNOWY)}</div>'


def draw_suite(browser: Any, folder: Path) -> None:
    suite = Path(shutil.copy(Path(__file__).with_name("report_picture.toml"), folder))
    for command in ("run", "report"):
        _ostta(folder, "bench", command, suite.name)
    _save(_wide_and_narrow(browser, folder / "ostta-runs" / f"{suite.stem}.html"), DOCS / "report.png")


def draw_stream(browser: Any, folder: Path) -> None:
    """Digits are 10 % of the first 560 images and 50 % of the other 500."""
    yard = folder / "yard"
    yard.mkdir()
    for number, image in enumerate(_images(560, 0.1) + _images(500, 0.5, start=504)):
        image.save(yard / f"{number:04}.png")
    classes = ",".join(open_dataset("sample:cifar10").classes)
    _ostta(folder, "stream", yard.name, "--backbone", "embedded", "--classes", classes, "--out", "out", "--no-panel")
    _save(_wide_and_narrow(browser, folder / "out" / "report.html"), DOCS / "stream-report.png")


def draw_dashboard(browser: Any, folder: Path) -> None:
    """Sessions of a server. Unknown images become frequent in the first; the second has too high a learning rate."""
    import uvicorn

    from ostta.server import LocalEngine, create_app
    from ostta.server.logs import log_to

    log_to(io.StringIO())
    server = uvicorn.Server(
        uvicorn.Config(create_app(LocalEngine(ostta.StreamPool("embedded"))), port=0, log_level="error")
    )
    threading.Thread(target=server.run, daemon=True).start()
    while not server.started:
        time.sleep(0.01)
    address = f"http://127.0.0.1:{server.servers[0].sockets[0].getsockname()[1]}"
    mixed, late = _images(300, 0.5), _images(400, 0.15) + _images(200, 0.6, start=340)
    sessions = {
        "Front door": ({}, late),
        "Stable": ({"method": "rosita", "options": {"lr": 3.0}}, mixed),
        "Car park, level 2": ({"method": "rosita"}, _images(300, 0.0, classes=("automobile", "truck"))),
        "Gate 7": ({"method": "rosita"}, mixed),
        "Harbour": ({}, _images(300, 0.8)),
        "Test bench": ({"method": "tda", "guard": False}, mixed),
    }
    classes = open_dataset("sample:cifar10").classes
    with Client(address) as client:
        ids = {name: client.create(classes, name=name, **options)["id"] for name, (options, _) in sessions.items()}
        for name, (_, images) in reversed(sessions.items()):
            for image in images:
                client.send(ids[name], image)
    page = browser.new_page(viewport={"width": 1180, "height": 700})
    page.goto(address)
    page.get_by_role("link", name="Front door").wait_for()
    _save(_shot(page.locator("body")), DOCS / "dashboard-overview.png")
    page.get_by_role("link", name="Front door").click()
    page.set_viewport_size({"width": 1180, "height": 1380})
    page.get_by_text("smallest accepted probability").first.wait_for()
    _save(_shot(page), DOCS / "dashboard-session.png")
    ship = folder / "ship.png"
    mixed[8].save(ship)
    page.locator("input[type=file]").first.set_input_files(ship)
    page.locator(".answer img").wait_for()
    _save(_shot(page.locator(".answer")), DOCS / "dashboard-answer.png")
    server.should_exit = True


PICTURES = {"demo": draw_demo, "suite": draw_suite, "stream": draw_stream, "dashboard": draw_dashboard}


def _images(count: int, unknown: float, start: int = 0, classes: tuple[str, ...] = ()) -> list[Image.Image]:
    """Return sample images of CIFAR-10, from `start` on, with a share of digits spread evenly."""
    known, digits = open_dataset("sample:cifar10"), open_dataset("sample:mnist")
    wanted = [number for number, label in enumerate(known.labels) if not classes or known.classes[label] in classes]
    places = iter(wanted[start:] * 3)
    return [
        digits.image((start + number) % len(digits))
        if int((number + 1) * unknown) > int(number * unknown)
        else known.image(next(places))
        for number in range(count)
    ]


def _ostta(folder: Path, *words: str) -> None:
    """Run a command in the folder, so that pages show short names."""
    ostta = str(Path(sys.executable).with_name("ostta"))
    subprocess.run([ostta, *words], cwd=folder, check=True, stdout=subprocess.DEVNULL)


def _wide_and_narrow(browser: Any, path: Path) -> Image.Image:
    whole, left = Image.new("RGB", (WIDE + NARROW, HEIGHT), "white"), 0
    for width, scheme in ((WIDE, "light"), (NARROW, "dark")):
        whole.paste(_head(browser, path, width, scheme), (left, 0))
        left += width
    return whole.resize((1190, 1092), Image.Resampling.LANCZOS)


def _head(browser: Any, path: Path, width: int, scheme: str) -> Image.Image:
    page = browser.new_page(viewport={"width": width, "height": HEIGHT}, color_scheme=scheme)
    page.goto(path.resolve().as_uri())
    return _shot(page)


def _shot(place: Any) -> Image.Image:
    return Image.open(io.BytesIO(place.screenshot())).convert("RGB")


def _save(image: Image.Image, path: Path) -> None:
    """Few colours make a small file."""
    image.quantize(160, method=Image.Quantize.MAXCOVERAGE, dither=Image.Dither.NONE).save(path, optimize=True)
    print(f"{path}: {path.stat().st_size:,} bytes")


if __name__ == "__main__":
    main()
