"""Ids as typed on the command line: complete, short as lists show them, or a prefix that is unique."""

from __future__ import annotations

import re
from collections.abc import Sequence
from typing import TYPE_CHECKING

from holdfast.cli.exit_errors import ExitError
from holdfast.errors import JobNotFound
from holdfast.model.ids import parse_short_id
from holdfast.runtime.exit_code import ExitCode

if TYPE_CHECKING:
    from holdfast.app.app import App

_BEGINNING = re.compile(r"[0-9a-f][0-9a-f-]{0,35}")
_WHOLE = 36
_SHOWN = 10


async def whole_ids(app: App, given: Sequence[str]) -> list[str]:
    """Return the complete job ids, each once; raise if a prefix matches no job or several."""
    found = [await whole_id(app, text) for text in given]
    return list(dict.fromkeys(found))


async def whole_id(app: App, given: str) -> str:
    """Return the complete id of the job."""
    typed = given.strip().lower()
    is_short = parse_short_id(typed) is not None
    text = typed if is_short else beginning(given, "job")
    if len(text) == _WHOLE:
        return text
    candidates = await (await app.opened()).insight.find(text, _SHOWN + 1)
    if not candidates and is_short:
        raise JobNotFound(f"there is no job {text} in this store: it was pruned, or it belongs to another store")
    if not candidates:
        message = f"no job id starts with {text}: the job never existed, or it was pruned after its retention"
        raise JobNotFound(message)
    return only(text, candidates, "job")


def beginning(given: str, noun: str) -> str:
    """Return the argument as the prefix of an id; raise if it cannot be one."""
    text = given.strip().lower()
    if not _BEGINNING.fullmatch(text):
        message = f"{given!r} is not a valid {noun} id, nor the beginning of one, nor a short one as lists show it"
        raise ExitError(message, ExitCode.USAGE)
    return text


def only(text: str, candidates: Sequence[str], noun: str) -> str:
    """Return the single id that starts with `text`; if there are several, raise and list them."""
    if len(candidates) > 1:
        shown = "\n".join(f"  {candidate}" for candidate in candidates[:_SHOWN])
        more = "\n  …" if len(candidates) > _SHOWN else ""
        raise ExitError(f"{text} matches several {noun} ids; give more characters:\n{shown}{more}", ExitCode.USAGE)
    return candidates[0]
