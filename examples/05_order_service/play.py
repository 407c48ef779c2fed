"""The order service from end to end, with a verdict: python play.py."""

from __future__ import annotations

import asyncio
import contextlib
import os
import sys

from database import throw_away_server


def main() -> int:
    """Use the database that $ORDERS_URL names, or a server of our own for this run."""
    given = os.environ.get("ORDERS_URL")
    with contextlib.nullcontext(given) if given else throw_away_server() as url:
        os.environ["ORDERS_URL"] = url  # for the programs that this one starts, too
        from scenes import play

        return asyncio.run(play())


if __name__ == "__main__":
    sys.exit(main())
