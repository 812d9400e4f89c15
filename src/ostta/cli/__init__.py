"""The command line: parse, call, print. Exit codes: 0, 1 for a problem said in one sentence, 2 for usage."""

from __future__ import annotations

import sys
import warnings


def main() -> None:
    """The `ostta` command."""
    try:
        from .app import app
    except ModuleNotFoundError as missing:
        if missing.name not in ("typer", "rich"):
            raise
        sys.exit(f"The command line needs {missing.name}: pip install 'ostta[all]'.")
    from ..core.types import Error

    # A warning is a sentence for the person at the terminal, not a line of source code.
    warnings.showwarning = lambda message, *_: print(f"Note: {message}", file=sys.stderr)
    try:
        app()
    except Error as problem:
        print(problem, file=sys.stderr)
        sys.exit(1)
    except KeyboardInterrupt:
        print("Stopped.", file=sys.stderr)
        sys.exit(130)
    except BrokenPipeError:
        # The reader (head, less) has gone; there is nobody to tell.
        sys.stderr.close()
        sys.exit(0)
