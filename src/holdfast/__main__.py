"""`python -m holdfast`: the command line."""

from __future__ import annotations

import sys
from pathlib import Path


def run() -> None:
    """Run the command line without the current directory on the module path.

    `python -m` puts it there; the modules of an app are found in it only by `--app-dir`.
    """
    if not sys.flags.safe_path and sys.path and Path(sys.path[0]).absolute() == Path.cwd():
        del sys.path[0]
    from holdfast.cli.main import main

    main()


if __name__ == "__main__":
    run()
