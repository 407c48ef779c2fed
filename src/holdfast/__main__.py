"""`python -m holdfast`: the command line."""

from __future__ import annotations

import sys
from pathlib import Path


def run() -> None:
    """Run the command line without the current directory on the module path.

    `python -m` puts it there. It is added again, if it is safe, when an app is imported: `holdfast.cli.loading`.
    """
    if not sys.flags.safe_path and sys.path and Path(sys.path[0]).absolute() == Path.cwd():
        del sys.path[0]
    from holdfast.cli.main import main

    main()


if __name__ == "__main__":
    run()
