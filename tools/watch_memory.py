"""Run a command for some time and write down how much memory it takes: for streams that must not grow.

    python tools/watch_memory.py --seconds 300 -- ostta stream clip.mp4 --classes cat,dog
    python tools/watch_memory.py --seconds 300 --grow FOLDER --from IMAGES --rate 10 \\
        -- ostta stream FOLDER --follow --classes cat,dog

Every ten seconds one line: seconds, megabytes (resident), lines that the command wrote. At the end SIGTERM, and the
first, last and largest figure, from the thirtieth second on: before that, libraries are still being loaded. `--grow`
copies the images of one folder into another meanwhile, in pieces, as a slow camera would; they begin again at the end,
under new names.
"""

from __future__ import annotations

import argparse
import itertools
import signal
import subprocess
import sys
import threading
import time
from pathlib import Path

import psutil

BETWEEN = 10.0
SETTLED = 30.0


def main() -> None:
    wanted = arguments()
    began, stop, lines = time.monotonic(), threading.Event(), itertools.count()
    written = [0]
    child = subprocess.Popen(wanted.command, stdout=subprocess.PIPE)

    def count() -> None:
        assert child.stdout is not None
        for _ in child.stdout:
            written[0] = next(lines) + 1

    threading.Thread(target=count, daemon=True).start()
    if wanted.grow is not None:
        threading.Thread(target=grow, args=(wanted.source, wanted.grow, wanted.rate, stop), daemon=True).start()
    found: list[tuple[float, float]] = []
    while child.poll() is None and time.monotonic() - began < wanted.seconds:
        time.sleep(BETWEEN)
        try:
            process = psutil.Process(child.pid)
            taken = sum(each.memory_info().rss for each in [process, *process.children(recursive=True)]) / 2**20
        except psutil.NoSuchProcess:
            break
        found.append((time.monotonic() - began, taken))
        print(f"{found[-1][0]:6.0f} s {taken:8.1f} MB {written[0]:8} lines", flush=True)
    stop.set()
    ended = "by itself" if child.poll() is not None else "by SIGTERM"
    if child.poll() is None:
        child.send_signal(signal.SIGTERM)
    code = child.wait(60)
    settled = [taken for seconds, taken in found if seconds >= SETTLED]
    if not settled:
        sys.exit(f"It ended after {time.monotonic() - began:.0f} s, too early to say anything.")
    print(
        f"first {settled[0]:.1f} MB, last {settled[-1]:.1f} MB, largest {max(settled):.1f} MB; {written[0]} lines; "
        f"ended {ended} with code {code}"
    )


def grow(source: Path, folder: Path, rate: float, stop: threading.Event) -> None:
    """Images in two pieces each, `rate` a second."""
    paths = sorted(path for path in source.iterdir() if path.is_file())
    for number, path in enumerate(itertools.cycle(paths)):
        content = path.read_bytes()
        with open(folder / f"{number:07}{path.suffix}", "wb", buffering=0) as file:
            file.write(content[: len(content) // 2])
            if stop.wait(1 / rate):
                return
            file.write(content[len(content) // 2 :])


def arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--seconds", type=float, default=300.0)
    parser.add_argument("--grow", type=Path, help="the folder that grows")
    parser.add_argument("--from", dest="source", type=Path, help="a folder of images")
    parser.add_argument("--rate", type=float, default=10.0)
    parser.add_argument("command", nargs="+", help="behind --")
    return parser.parse_args()


if __name__ == "__main__":
    main()
