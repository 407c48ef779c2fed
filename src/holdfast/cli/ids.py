"""Job ids as people type them: whole, or a beginning that only one job has."""

from __future__ import annotations

import re
from collections.abc import Sequence

from holdfast.app.app import App
from holdfast.cli.failures import Code, Failure
from holdfast.errors import JobNotFound

_BEGINNING = re.compile(r"[0-9a-f][0-9a-f-]{0,35}")
_WHOLE = 36
_SHOWN = 10


async def whole_ids(app: App, given: Sequence[str]) -> list[str]:
    """Return the ids that were meant, each once; refuse what fits no job, or several."""
    found = [await whole_id(app, text) for text in given]
    return list(dict.fromkeys(found))


async def whole_id(app: App, given: str) -> str:
    """Return the id that was meant."""
    text = given.strip().lower()
    if not _BEGINNING.fullmatch(text):
        raise Failure(f"{given!r} is no job id, nor the beginning of one", Code.USAGE)
    if len(text) == _WHOLE:
        return text
    candidates = await (await app.opened()).insight.find(text, _SHOWN + 1)
    if not candidates:
        message = f"no job id begins with {text}: it never existed, or it was pruned after its retention"
        raise JobNotFound(message)
    if len(candidates) > 1:
        shown = "\n".join(f"  {candidate}" for candidate in candidates[:_SHOWN])
        more = "\n  …" if len(candidates) > _SHOWN else ""
        raise Failure(f"{text} is the beginning of several job ids:\n{shown}{more}", Code.USAGE)
    return candidates[0]
