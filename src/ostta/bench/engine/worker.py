"""The process of one run: `python -m ostta.bench.engine.worker`, started by `local.py`. A job comes in as one line, messages go out as lines.

Standard input stays open as long as the parent lives. Its end is the sign that nobody waits for this run any more.
"""

from __future__ import annotations

import json
import os
import sys
import time
from threading import Thread

from .job import Job, attempt

# Seconds between two messages about progress.
PAUSE = 0.2


def main() -> None:
    """Carry out the job on standard input."""
    with os.fdopen(os.dup(1), "w", encoding="utf-8") as messages:
        # What libraries print must not get between the messages.
        os.dup2(2, 1)
        job = Job.model_validate_json(sys.stdin.buffer.readline())
        Thread(target=_end_with_parent, daemon=True).start()
        told = -PAUSE

        def watch(done: int, total: int, hm: float | None) -> None:
            nonlocal told
            if time.monotonic() - told >= PAUSE or done == total:
                told = time.monotonic()
                print(json.dumps({"done": done, "total": total}), file=messages, flush=True)

        ending = attempt(job, watch)
        print(json.dumps({"ending": ending.model_dump(mode="json")}), file=messages, flush=True)


def _end_with_parent() -> None:
    # Below Python's own buffers, whose lock would be in the way of a normal end.
    while os.read(0, 1):
        pass
    os._exit(1)


if __name__ == "__main__":
    main()
