"""Ids as people type them: whole, or a beginning that only one of the ids in question has."""

from __future__ import annotations

import re
from collections.abc import Sequence

from holdfast.app.app import App
from holdfast.cli.exit_errors import ExitError
from holdfast.errors import JobNotFound
from holdfast.runtime.exit_code import ExitCode

_BEGINNING = re.compile(r"[0-9a-f][0-9a-f-]{0,35}")
_WHOLE = 36
_SHOWN = 10


async def whole_ids(app: App, given: Sequence[str]) -> list[str]:
    """Return the ids of jobs that were meant, each once; refuse what fits no job, or several."""
    found = [await whole_id(app, text) for text in given]
    return list(dict.fromkeys(found))


async def whole_id(app: App, given: str) -> str:
    """Return the id of the job that was meant."""
    text = beginning(given, "job")
    if len(text) == _WHOLE:
        return text
    candidates = await (await app.opened()).insight.find(text, _SHOWN + 1)
    if not candidates:
        message = f"no job id begins with {text}: it never existed, or it was pruned after its retention"
        raise JobNotFound(message)
    return only(text, candidates, "job")


def beginning(given: str, noun: str) -> str:
    """Return what was typed as the beginning of an id; refuse what cannot be one."""
    text = given.strip().lower()
    if not _BEGINNING.fullmatch(text):
        raise ExitError(f"{given!r} is no {noun} id, nor the beginning of one", ExitCode.USAGE)
    return text


def only(text: str, candidates: Sequence[str], noun: str) -> str:
    """Return the one id that begins with `text`; refuse several, and list them."""
    if len(candidates) > 1:
        shown = "\n".join(f"  {candidate}" for candidate in candidates[:_SHOWN])
        more = "\n  …" if len(candidates) > _SHOWN else ""
        raise ExitError(f"{text} is the beginning of several {noun} ids:\n{shown}{more}", ExitCode.USAGE)
    return candidates[0]
