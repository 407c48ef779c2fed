"""Text that is safe for every store and every terminal."""

from __future__ import annotations

import re

_ELLIPSIS = "…"
_ELLIPSIS_BYTES = len(_ELLIPSIS.encode())

# C0 except \t and \n, DEL and C1 (terminals execute them, PostgreSQL cannot store NUL), surrogates (invalid in UTF-8).
_HOSTILE = re.compile("[\x00-\x08\x0b-\x1f\x7f-\x9f\ud800-\udfff]")


def clean(text: str, limit_bytes: int) -> str:
    r"""Return `text` with unsafe characters as visible escapes, in at most `limit_bytes` of UTF-8.

    NUL becomes the four characters `\x00`, a lone surrogate `\ud800`. Truncation is marked by an ellipsis if there is
    room for one, and never splits a character.
    """
    # A character has at least one byte, so the rest cannot fit: do not scan it.
    text = escape(text[: limit_bytes + 1])
    if len(text) <= limit_bytes:
        if text.isascii():
            return text
        encoded = text.encode()
        if len(encoded) <= limit_bytes:
            return text
    else:
        encoded = text.encode()
    room = limit_bytes - _ELLIPSIS_BYTES
    if room < 0:
        return encoded[: max(limit_bytes, 0)].decode(errors="ignore")
    return encoded[:room].decode(errors="ignore") + _ELLIPSIS


def escape(text: str) -> str:
    """Return `text` with control characters and lone surrogates as visible escapes; newlines and tabs are kept."""
    if text.isascii() and text.isprintable():
        return text
    return _HOSTILE.sub(_visible, text)


def _visible(match: re.Match[str]) -> str:
    code = ord(match[0])
    return f"\\x{code:02x}" if code <= 0xFF else f"\\u{code:04x}"  # noqa: PLR2004
