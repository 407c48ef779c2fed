"""The Lua scripts: one for each hot verb, and two without a rule in them, `read` and `write`.

A client carries the scripts of its own version and loads them when a server answers NOSCRIPT, so that old and new
workers run side by side. Producers are refused while the server's memory is full; all other scripts run then, too:
workers empty the queues.
"""

from __future__ import annotations

import hashlib
from collections.abc import Sequence
from importlib.resources import files
from typing import NamedTuple

_FOLDER = files("holdfast.backends.redis") / "lua"


class LuaScript(NamedTuple):
    """A script, the hash under which a server knows it, and whether it may write."""

    name: str
    sha: str
    text: str
    writes: bool


def _script(name: str, *parts: str, flags: str = " flags=allow-oom", calls: Sequence[str] = ()) -> LuaScript:
    """Return the script of these files; `calls` are other scripts, which it calls as functions of their ARGV."""
    texts = [_text(part) for part in ("prelude", *parts[:-1])]
    texts += [f"local function {part}(ARGV)\n{_text(part)}\nend" for part in calls]
    texts += [_text(part) for part in parts[-1:]]
    text = "\n".join([f"#!lua{flags}", *texts])
    sha = hashlib.sha1(text.encode(), usedforsecurity=False).hexdigest()
    return LuaScript(name, sha, text, "no-writes" not in flags)


def _text(part: str) -> str:
    return (_FOLDER / f"{part}.lua").read_text(encoding="utf-8")


INSTALL = _text("install")
ENQUEUE = _script("enqueue", "insert", "enqueue", flags="")
STAGE = _script("stage", "batch_lock", "stage", flags="")
APPLY_BATCH = _script("apply_batch", "batch_lock", "insert", "apply", "apply_batch")
FRONT = _script("front", "first_of", "front", flags=" flags=no-writes")
CLAIM = _script("claim", "first_of", "claim")
COMPLETE = _script("complete", "complete")
EXTEND = _script("extend", "extend")
PROMOTE = _script("promote", "first_of", "promote")
DELETE = _script("delete", "batch_lock", "ledger_entries", "delete")
SET_PAGE = _script("set_page", "set_page", flags=" flags=no-writes")
LEDGER_PAGE = _script("ledger_page", "ledger_entries", "ledger_page", flags=" flags=no-writes")
WRITE = _script("write", "batch_lock", "insert", "apply", "write")
COMMIT = _script("commit", "batch_lock", "insert", "apply", "write", flags="")
RESERVE_SEQS = _script("reserve_seqs", "reserve_seqs", flags="")
READ = _script("read", "read", flags=" flags=no-writes")
HANDLER_READ = _script("handler_read", "digest", "handler_read", flags=" flags=no-writes")
EFFECT = _script("effect", "batch_lock", "insert", "apply", "digest", "effect", flags="", calls=("write", "complete"))
_VERBS = (ENQUEUE, STAGE, APPLY_BATCH, FRONT, CLAIM, COMPLETE, EXTEND, PROMOTE, DELETE, SET_PAGE, LEDGER_PAGE)
ALL = (*_VERBS, WRITE, COMMIT, RESERVE_SEQS, READ, HANDLER_READ, EFFECT)
