"""The pictures of pages in docs/, from pages that `ostta` wrote, by the Chromium of this machine.

    ostta demo && ostta bench report mine.toml --data DATA && ostta stream yard --classes ... --out yard
    python tools/draw_pages.py --demo ostta-demo/report.html --suite ostta-runs/mine.html --stream yard/report.html

demo.png has the histograms of the demo's runs and the accuracies of the last one; report.png and stream-report.png the head of a page,
on a computer, and on a phone with dark colours.
"""

from __future__ import annotations

import argparse
import io
import shutil
from pathlib import Path
from typing import Any

from PIL import Image

DOCS = Path(__file__).resolve().parents[1] / "docs"
WIDE, NARROW, HEIGHT = 1280, 420, 1560
# The charts of all runs side by side, and nothing else of the page.
GATHER = """() => {
  const pictures = [...document.querySelectorAll("figure.picture")];
  const title = (figure) => figure.querySelector("b").textContent;
  const shown = pictures.filter((figure) => title(figure).endsWith(": scores"));
  shown.push(pictures.filter((figure) => title(figure).includes("accuracies")).at(-1));
  const keys = [...document.querySelectorAll("p.key")].slice(-2);
  for (const figure of shown) figure.querySelector("figcaption span")?.remove();
  const row = document.createElement("div");
  row.id = "gathered";
  row.style = `display: grid; grid-template-columns: repeat(${shown.length}, 1fr); gap: 1.5rem; padding: .6rem;`;
  row.append(...shown, ...keys);
  for (const key of keys) key.style = "grid-column: span 2; margin: 0;";
  document.body.replaceChildren(row);
  document.body.style = "display: block; max-width: none; padding: 0; margin: 0;";
}"""


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    for name in ("demo", "suite", "stream"):
        parser.add_argument(f"--{name}", type=Path)
    given = parser.parse_args()
    from playwright.sync_api import sync_playwright

    with sync_playwright() as play:
        browser = play.chromium.launch(executable_path=shutil.which("chromium"), args=["--no-sandbox", "--disable-gpu"])
        if given.demo is not None:
            page = browser.new_page(viewport={"width": 1400, "height": 600}, device_scale_factor=1.6)
            page.goto(given.demo.resolve().as_uri())
            page.evaluate(GATHER)
            _save(_shot(page.locator("#gathered")), DOCS / "demo.png")
        for path, name in ((given.suite, "report.png"), (given.stream, "stream-report.png")):
            if path is not None:
                sides = [_head(browser, path, width, scheme) for width, scheme in ((WIDE, "light"), (NARROW, "dark"))]
                whole = Image.new("RGB", (WIDE + NARROW, HEIGHT), "white")
                whole.paste(sides[0], (0, 0))
                whole.paste(sides[1], (WIDE, 0))
                _save(whole.resize((1190, 1092), Image.Resampling.LANCZOS), DOCS / name)
        browser.close()


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
