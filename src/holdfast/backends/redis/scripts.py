"""The Lua scripts: one for each hot verb, and two without a rule in them, `read` and `write`.

A client carries the scripts of its own version and loads them when a server answers NOSCRIPT, so that old and new
workers run side by side. Producers are refused while the server's memory is full; all other scripts run then, too:
workers empty the queues.
"""

from __future__ import annotations

import hashlib
from importlib.resources import files
from typing import NamedTuple

_FOLDER = files("holdfast.backends.redis") / "lua"


class LuaScript(NamedTuple):
    """A script, the hash under which a server knows it, and whether it may write."""

    name: str
    sha: str
    text: str
    writes: bool


def _script(name: str, *parts: str, flags: str = " flags=allow-oom") -> LuaScript:
    texts = [(_FOLDER / f"{part}.lua").read_text(encoding="utf-8") for part in ("prelude", *parts)]
    text = "\n".join([f"#!lua{flags}", *texts])
    sha = hashlib.sha1(text.encode(), usedforsecurity=False).hexdigest()
    return LuaScript(name, sha, text, "no-writes" not in flags)


INSTALL = (_FOLDER / "install.lua").read_text(encoding="utf-8")
ENQUEUE = _script("enqueue", "insert", "enqueue", flags="")
STAGE = _script("stage", "stage", flags="")
SPREAD = _script("spread", "insert", "spread")
CLAIM = _script("claim", "claim")
COMPLETE = _script("complete", "complete")
EXTEND = _script("extend", "extend")
PROMOTE = _script("promote", "promote")
ERASE = _script("erase", "erase")
WRITE = _script("write", "insert", "write")
COMMIT = _script("commit", "insert", "write", flags="")
TAKE = _script("take", "take", flags="")
READ = _script("read", "read", flags=" flags=no-writes")
ALL = (ENQUEUE, STAGE, SPREAD, CLAIM, COMPLETE, EXTEND, PROMOTE, ERASE, WRITE, COMMIT, TAKE, READ)
