"""Make text from the store and from errors safe to print."""

from __future__ import annotations

import re
import textwrap
import unicodedata

_HIDDEN = frozenset({"Cc", "Cf", "Cs", "Zl", "Zp"})  # control, format (bidi, zero width), surrogates, line separators
_SHORT = {"\n": "\\n", "\t": "\\t", "\r": "\\r"}
_LATIN = 0xFF
_BASIC = 0xFFFF

# Up to the last @: a password that is not percent-encoded may contain any character.
_IN_URL = re.compile(r"(?P<before>[a-z][a-z0-9+.-]*://[^\s/?#:@]*:)[^\s'\"]+(?=@)", re.IGNORECASE)
_IN_QUERY = re.compile(r"(?P<before>[?&](?:[a-z_]*password|passwd|pwd|token|secret)=)[^\s&#'\"]+", re.IGNORECASE)


def line(text: str) -> str:
    r"""Return `text` as one line without control characters: a newline becomes `\n`, an escape `\x1b`."""
    if text.isascii() and text.isprintable():
        return text
    return "".join(_visible(character) if _is_hidden(character) else character for character in text)


def block(text: str) -> str:
    """Return `text` with its line breaks kept and the rest treated as in `line`; tabs become spaces."""
    return "\n".join(line(part) for part in text.expandtabs(4).split("\n"))


def wrapped(text: str, width: int) -> str:
    """Return `text` in lines of at most `width` characters, but for commands in backticks, which can be pasted."""
    whole = re.sub("`[^`]*`", lambda command: command[0].replace(" ", "\0"), text)
    return textwrap.fill(whole, width, break_long_words=False, break_on_hyphens=False).replace("\0", " ")


def mask(text: str) -> str:
    """Return `text` with every password in a URL replaced by `***`."""
    return _IN_QUERY.sub(r"\g<before>***", _IN_URL.sub(r"\g<before>***", text))


def has_password(url: str) -> bool:
    """Return whether a URL contains a password."""
    return mask(url) != url


def _is_hidden(character: str) -> bool:
    return unicodedata.category(character) in _HIDDEN


def _visible(character: str) -> str:
    code = ord(character)
    if character in _SHORT:
        return _SHORT[character]
    if code <= _LATIN:
        return f"\\x{code:02x}"
    return f"\\u{code:04x}" if code <= _BASIC else f"\\U{code:08x}"
