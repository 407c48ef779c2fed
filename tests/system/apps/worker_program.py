"""A worker as a program: `python -m tests.system.apps.worker_program '{"lease": 1.0, …}'`.

Besides the settings of `App.run_worker`: `broken` ("claim" or "keeper") lets that part die of an unexpected error, and
`memory` limits the address space of the process in bytes.
"""

from __future__ import annotations

import json
import logging
import resource
import sys
from typing import Any

from tests.system.apps.ledger_app import app


def break_down(part: str) -> None:
    def fail(*_: Any, **__: Any) -> None:
        message = f"an error in the {part} that nobody foresaw"
        raise RuntimeError(message)

    if part == "claim":
        type(app.backend.jobs).claim = fail  # type: ignore[method-assign, assignment]
    else:
        type(app.backend).extender = fail  # type: ignore[method-assign, assignment]


def main() -> int:
    settings: dict[str, Any] = json.loads(sys.argv[1])
    logging.basicConfig(level=logging.INFO, stream=sys.stdout, format="%(levelname)s %(message)s")
    memory = settings.pop("memory", None)
    if memory is not None:
        resource.setrlimit(resource.RLIMIT_AS, (memory, memory))
    part = settings.pop("broken", None)
    if part is not None:
        break_down(part)
    return app.run_worker(**settings)


if __name__ == "__main__":
    sys.exit(main())
