"""Text that any store can hold and any terminal can show."""

from __future__ import annotations

import re

_ELLIPSIS = "…"
_ELLIPSIS_BYTES = len(_ELLIPSIS.encode())

# C0 but \t and \n, DEL and C1 (terminals obey them, PostgreSQL cannot store NUL), and surrogates (no UTF-8 has them).
_HOSTILE = re.compile("[\x00-\x08\x0b-\x1f\x7f-\x9f\ud800-\udfff]")


def clean(text: str, limit_bytes: int) -> str:
    r"""Return `text` with hostile characters as visible escapes, in at most `limit_bytes` of UTF-8.

    NUL becomes the four characters `\x00`, a lone surrogate `\ud800`. What is cut off is marked by an ellipsis, if
    there is room for one; a character is never cut in two.
    """
    # A character is a byte at least, so nothing past the limit can be kept: do not scan it.
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
    """Return `text` with control characters and lone surrogates as visible escapes; newline and tab stay."""
    if text.isascii() and text.isprintable():
        return text
    return _HOSTILE.sub(_visible, text)


def _visible(match: re.Match[str]) -> str:
    code = ord(match[0])
    return f"\\x{code:02x}" if code <= 0xFF else f"\\u{code:04x}"  # noqa: PLR2004
