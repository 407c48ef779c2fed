"""Numbers, durations and instants as the pages write them; instants as `<time>`, which the browser ages."""

from __future__ import annotations

from collections.abc import Collection
from datetime import UTC, datetime, timedelta
from typing import Any, Final, Literal

import msgspec
from markupsafe import Markup, escape

from holdfast.model.ids import short_id
from holdfast.reports.text import block, line
from holdfast.reports.times import iso, now, relative, span

NOTHING: Final = "\N{EN DASH}"
ELLIPSIS: Final = "\N{HORIZONTAL ELLIPSIS}"
_SPACE: Final = "\N{NARROW NO-BREAK SPACE}"
_SHORT: Final = timedelta(seconds=1)
_LIBRARIES: Final = ("/site-packages/", "/dist-packages/", "/lib/python", "/holdfast/", "<frozen ")
_MILLISECOND: Final = timedelta(milliseconds=1)


def number(value: float | None) -> str:
    """Return a number with its digits grouped: `10 000`."""
    if value is None:
        return NOTHING
    text = f"{value:,.0f}" if value >= 10 or value == int(value) else f"{value:.1f}"  # noqa: PLR2004
    return text.replace(",", _SPACE)


def at_least(value: int, state: str, counted: Collection[str]) -> str:
    """Return how many jobs are in a state; with a plus if counting stopped there."""
    return f"{number(value)}{'+' if state in counted else ''}"


def duration(value: timedelta | None) -> str:
    """Return a duration in its two largest units, and a short one in milliseconds."""
    if value is None:
        return NOTHING
    if timedelta(0) < value < _SHORT:
        return f"{value / _MILLISECOND:.0f} ms" if value >= _MILLISECOND else "<1 ms"
    return span(value)


def ago(instant: datetime | None) -> Markup | str:
    """Return an instant relative to now, with the exact time in its title."""
    if instant is None:
        return NOTHING
    exact = f"{instant.astimezone(UTC):%Y-%m-%d %H:%M:%S} UTC"
    return Markup('<time datetime="{}" title="{}">{}</time>').format(iso(instant), exact, relative(instant))


def exact(instant: datetime | None) -> str:
    """Return an instant in full."""
    return NOTHING if instant is None else f"{instant.astimezone(UTC):%Y-%m-%d %H:%M:%S} UTC"


def clock(instant: datetime) -> str:
    """Return the time of day, with the day if that is not today."""
    at = instant.astimezone(UTC)
    return f"{at:%H:%M:%S} UTC" if at.date() == now().date() else f"{at:%b %d %H:%M:%S} UTC"


def short(job: Any) -> str:
    """Return the short id of a job, of any of the values that have one."""
    return short_id(job.seq, job_id(job))


def job_id(job: Any) -> str:
    """Return the id of a job, of any of the values that have one."""
    found: str = getattr(job, "job_id", None) or job.id
    return found


def pretty(data: object) -> str:
    """Return JSON data, indented; whole numbers of any size stay exact."""
    return msgspec.json.format(msgspec.json.encode(data), indent=2).decode()


def tail(text: str, most: int = 18) -> str:
    """Return the end of a long id, which identifies it better than its beginning."""
    return text if len(text) <= most else f"{ELLIPSIS}{text[-most:]}"


def cut(text: str, most: int, keeps: Literal["begin", "end"] = "begin") -> str:
    """Return the beginning or the end of a text, at most so many bytes of HTML, with an ellipsis if it is cut."""
    if len(text) <= most and _bytes_of_html(text) <= most:
        return text
    room = most - len(ELLIPSIS.encode())
    fits, fits_not = 0, most + 1
    while fits_not - fits > 1:
        length = (fits + fits_not) // 2
        is_fitting = _bytes_of_html(text[:length] if keeps == "begin" else text[-length:]) <= room
        fits, fits_not = (length, fits_not) if is_fitting else (fits, length)
    return text[:fits] + ELLIPSIS if keeps == "begin" else ELLIPSIS + text[len(text) - fits :]


def frames(text: str) -> Markup:
    """Return a traceback as HTML, with the frames in bold that are neither of an installed package nor of Python."""
    lines: list[Markup] = []
    is_own = False
    for each in block(text).split("\n"):
        if each.startswith("  File "):
            is_own = not any(part in each for part in _LIBRARIES)
        elif not each.startswith("    "):
            is_own = False
        lines.append(Markup("<b>{}</b>" if is_own else "{}").format(each))  # noqa: S704 - both are ours
    return Markup("\n").join(lines)


def _bytes_of_html(text: str) -> int:
    return len(escape(block(text)).encode())


FILTERS: Final[dict[str, Any]] = {
    "number": number,
    "duration": duration,
    "ago": ago,
    "exact": exact,
    "clock": clock,
    "short": short,
    "job_id": job_id,
    "pretty": pretty,
    "tail": tail,
    "line": line,
    "cut": cut,
    "frames": frames,
}
