"""Errors as text: the part of an exception that is stored.

**The signature** groups errors with the same cause. It is a short hash of the exception class and of the innermost
frame of user code: its file name and the qualified name of its function. The line number is excluded on purpose, so
that an edit further up in the file does not change the signature; so is the message, which often contains ids.
"""

from __future__ import annotations

import sysconfig
import traceback
from hashlib import blake2b
from pathlib import Path
from typing import TYPE_CHECKING

from holdfast.model.outcome import Cancel, Failure, Retry, Snooze
from holdfast.runtime.text import clean

if TYPE_CHECKING:
    from types import TracebackType

MAX_CLASS = 256
MAX_MESSAGE = 2 * 1024
MAX_TRACEBACK = 8 * 1024

_CUT = "\n  … {} characters left out …\n"
_HEAD_SHARE = 0.25  # the tail names the error and where it was raised, so it gets most of the space

_PACKAGE = str(Path(__file__).resolve().parent.parent) + "/"
_STDLIB = tuple({sysconfig.get_path(name) + "/" for name in ("stdlib", "platstdlib")})
_INSTALLED = tuple({sysconfig.get_path(name) + "/" for name in ("purelib", "platlib")})
# The frames between the worker and a handler: Holdfast's own, and those of the executors and tasks that it starts.
_CARRIERS = (_PACKAGE, *(f"{base}{part}" for base in _STDLIB for part in ("asyncio/", "concurrent/", "threading.py")))
_NOT_USER = (_PACKAGE, *_INSTALLED, *_STDLIB, "<frozen ")

_UNDESCRIBED = Failure(
    error_class="UnknownError",
    message="the error could not be described: inspecting it raises another error",
    traceback="",
    signature="0" * 16,
)


def describe(error: BaseException) -> Failure:
    """Return the stored form of an exception. Never raises, except for KeyboardInterrupt."""
    try:
        error_class = _class_name(error)
        frames = _user_frames(error.__traceback__)
        place = _place(frames)
        return Failure(
            error_class=error_class,
            message=clean(_message(error), MAX_MESSAGE),
            traceback=_traceback(error, frames),
            signature=_signature(error_class, "" if place is None else _function_of(place)),
            location="" if place is None else _location_of(place),
        )
    except KeyboardInterrupt:
        raise
    except BaseException:  # noqa: BLE001 - a broken exception class must not stop the worker
        return _UNDESCRIBED


def describe_reason(error_class: str, message: str) -> Failure:
    """Return a failure without an exception, such as a lost worker; `error_class` names its kind."""
    error_class = clean(error_class, MAX_CLASS)
    return Failure(error_class, clean(message, MAX_MESSAGE), traceback="", signature=_signature(error_class, ""))


def _class_name(error: BaseException) -> str:
    cls = type(error)
    module = "holdfast" if cls in {Cancel, Retry, Snooze} else cls.__module__  # the name by which users know them
    name = cls.__qualname__ if module == "builtins" else f"{module}.{cls.__qualname__}"
    return clean(name, MAX_CLASS)


def _message(error: BaseException) -> str:
    try:
        return str.__str__(str(error))  # a subclass of str may override methods
    except KeyboardInterrupt:
        raise
    except BaseException as broken:  # noqa: BLE001 - reported in the message
        return f"(its __str__ raised {type(broken).__name__})"


def _user_frames(start: TracebackType | None) -> TracebackType | None:
    """Return the traceback without Holdfast's frames at the top; all of it if there are no others."""
    frames = start
    while frames is not None and frames.tb_frame.f_code.co_filename.startswith(_CARRIERS):
        frames = frames.tb_next
    return frames or start


def _traceback(error: BaseException, frames: TracebackType | None) -> str:
    try:
        lines = traceback.TracebackException(type(error), error, frames, compact=True).format()
        text = "".join(lines)
    except KeyboardInterrupt:
        raise
    except BaseException as broken:  # noqa: BLE001 - reported in the text
        return f"(the traceback could not be formatted: {type(broken).__name__})"
    return _head_and_tail(text.rstrip("\n"))


def _head_and_tail(text: str) -> str:
    whole = clean(text, MAX_TRACEBACK + 4)  # longer than the limit only if it had to be truncated
    if len(whole.encode()) <= MAX_TRACEBACK:
        return whole
    room = MAX_TRACEBACK - len(_CUT.format(len(text)).encode())
    head = clean(text, int(room * _HEAD_SHARE))
    tail_room = room - len(head.encode())
    # Escapes make the tail longer: clean it first, then keep its end, without splitting a character.
    tail = clean(text[-tail_room:], 8 * tail_room).encode()[-tail_room:].decode(errors="ignore")
    return head + _CUT.format(max(len(text) - len(head) - len(tail), 0)) + tail


def _place(frames: TracebackType | None) -> TracebackType | None:
    """Return where user code failed: its innermost frame.

    Installed user code cannot be distinguished from its libraries; then the outermost frame, the handler, is used.
    """
    place: TracebackType | None = None
    while frames is not None:
        if place is None or not frames.tb_frame.f_code.co_filename.startswith(_NOT_USER):
            place = frames
        frames = frames.tb_next
    return place


def _function_of(place: TracebackType) -> str:
    code = place.tb_frame.f_code
    return f"{Path(code.co_filename).name}:{code.co_qualname}"


def _location_of(place: TracebackType) -> str:
    """Return file and line; the file as it is seen from the current directory if it is inside of that."""
    path = place.tb_frame.f_code.co_filename
    return clean(f"{path.removeprefix(str(Path.cwd()) + '/')}:{place.tb_lineno}", MAX_CLASS)


def _signature(error_class: str, place: str) -> str:
    return blake2b(f"{error_class}\n{place}".encode(errors="replace"), digest_size=8).hexdigest()
