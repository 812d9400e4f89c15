"""The command line: parse, call, print.

Exit codes: 0 for success, 1 for a problem that is reported in one sentence, 2 for wrong usage, such as an unknown class
name, 130 after Ctrl-C.
"""

from __future__ import annotations

import sys
import warnings
from contextlib import suppress

# The extra of pyproject.toml that installs a module. Other modules are imported where an Error names their extra.
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
    "fastapi": "serve",
    "httptools": "serve",
    "prometheus_client": "serve",
    "python_multipart": "serve",
    "sse_starlette": "serve",
    "starlette": "serve",
    "uvicorn": "serve",
}


def main() -> None:
    """Run the `ostta` command."""
    try:
        _main()
    except ModuleNotFoundError as missing:
        module = (missing.name or "").partition(".")[0]
        if module not in EXTRAS:
            raise
        _print_error(
            f"This command needs {module}, which is not installed: install it with "
            f'`pip install "ostta[{EXTRAS[module]}]"`.'
        )
        sys.exit(1)


def _main() -> None:
    from ..core.types import Error
    from .app import app
    from .output import ReaderGoneError, guarded_output

    # By default, a warning would be printed with a line of source code.
    warnings.showwarning = lambda message, *_: _print_error(f"Note: {message}")
    try:
        with guarded_output():
            app()
    except Error as problem:
        _print_error(str(problem))
        sys.exit(2 if problem.code == "class-unknown" else 1)
    except KeyboardInterrupt:
        _print_error("Stopped.")
        sys.exit(130)
    except ReaderGoneError:
        # A reader such as head or less has read enough.
        sys.exit(0)


def _print_error(sentence: str) -> None:
    # If stderr is closed or full, the exit code is all that is left.
    with suppress(OSError, ValueError):
        print(sentence, file=sys.stderr, flush=True)
