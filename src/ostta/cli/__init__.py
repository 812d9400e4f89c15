"""The command line: parse, call, print. Exit codes: 0, 1 for a problem said in one sentence, 2 for usage."""

from __future__ import annotations

import sys
import warnings
from contextlib import suppress

# The extra of `pyproject.toml` that installs a module; other modules say by themselves what they need.
EXTRAS = {
    "typer": "cli",
    "rich": "cli",
    "loky": "bench",
    "matplotlib": "bench",
    "ot": "bench",
    "pandas": "bench",
    "pyarrow": "bench",
    "scipy": "bench",
    "sklearn": "bench",
    "threadpoolctl": "bench",
}


def main() -> None:
    """The `ostta` command."""
    try:
        _main()
    except ModuleNotFoundError as missing:
        module = (missing.name or "").partition(".")[0]
        if module not in EXTRAS:
            raise
        _tell(
            f'This command needs {module}, which is not installed: install it with `pip install "ostta[{EXTRAS[module]}]"`.'
        )
        sys.exit(1)


def _main() -> None:
    from ..core.types import Error
    from .app import app
    from .output import ReaderGoneError, guarded_output

    # A warning is a sentence for the person at the terminal, not a line of source code.
    warnings.showwarning = lambda message, *_: _tell(f"Note: {message}")
    try:
        with guarded_output():
            app()
    except Error as problem:
        _tell(str(problem))
        sys.exit(1)
    except KeyboardInterrupt:
        _tell("Stopped.")
        sys.exit(130)
    except ReaderGoneError:
        # The reader (head, less) has what it wanted; there is nobody to tell.
        sys.exit(0)


def _tell(sentence: str) -> None:
    # Where the errors cannot be written either, there is only the exit code.
    with suppress(OSError, ValueError):
        print(sentence, file=sys.stderr, flush=True)
