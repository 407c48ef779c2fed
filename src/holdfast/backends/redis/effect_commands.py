"""The commands that a handler may use in its transaction, and the keys of each.

What is not listed is refused: commands that block, that run or keep scripts, that change the connection or the server,
that look at keys which they do not name, and those whose reply depends on the time or on chance.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final, NamedTuple

from holdfast.backends.redis.steps import Word
from holdfast.errors import ConfigError

Words = Sequence[bytes]

_MOST_WORDS = 4000  # of one command: Lua passes some 8,000 at most


class _CommandKind(NamedTuple):
    """How the words after a command's name are read: which of them are keys, and how many there must be."""

    keys: slice
    least: int


_FIRST = _CommandKind(slice(1), 1)
_TWO = _CommandKind(slice(2), 2)
_ALL = _CommandKind(slice(None), 1)
_PAIRS = _CommandKind(slice(None, None, 2), 2)


def _kinds(kind: _CommandKind, names: str) -> dict[str, _CommandKind]:
    return dict.fromkeys(names.split(), kind)


WRITES: Final = {
    **_kinds(
        _FIRST,
        "SET SETEX PSETEX SETNX SETRANGE SETBIT APPEND GETDEL INCR INCRBY INCRBYFLOAT DECR DECRBY "
        "EXPIRE PEXPIRE EXPIREAT PEXPIREAT PERSIST "
        "HSET HSETNX HDEL HINCRBY HINCRBYFLOAT "
        "LPUSH RPUSH LPUSHX RPUSHX LPOP RPOP LREM LSET LTRIM LINSERT "
        "SADD SREM ZADD ZREM ZINCRBY ZPOPMIN ZPOPMAX ZREMRANGEBYRANK ZREMRANGEBYSCORE ZREMRANGEBYLEX "
        "XADD XDEL XTRIM PFADD GEOADD",
    ),
    **_kinds(_TWO, "RENAME RENAMENX SMOVE LMOVE RPOPLPUSH"),
    **_kinds(_ALL, "DEL UNLINK SUNIONSTORE SINTERSTORE SDIFFSTORE PFMERGE"),
    **_kinds(_PAIRS, "MSET MSETNX"),
}
READS: Final = {
    **_kinds(
        _FIRST,
        "GET STRLEN GETRANGE GETBIT BITCOUNT TYPE EXPIRETIME PEXPIRETIME "
        "HGET HMGET HGETALL HKEYS HVALS HLEN HEXISTS HSTRLEN LRANGE LINDEX LLEN LPOS "
        "SMEMBERS SISMEMBER SMISMEMBER SCARD ZSCORE ZMSCORE ZRANGE ZRANGEBYSCORE ZRANGEBYLEX ZREVRANGE "
        "ZREVRANGEBYSCORE ZCARD ZCOUNT ZLEXCOUNT ZRANK ZREVRANK XLEN XRANGE XREVRANGE",
    ),
    **_kinds(_ALL, "MGET EXISTS SUNION SINTER SDIFF"),
}


class EffectCommand(NamedTuple):
    """A command with its words, encoded, and the keys among them."""

    words: Words
    keys: Words

    @property
    def size(self) -> int:
        """The bytes of its words."""
        return sum(map(len, self.words))

    def __str__(self) -> str:
        """Name it with its first key, for messages: values may be secret."""
        return f"{self.words[0].decode()} {self.keys[0].decode('utf-8', 'replace')}"


def writing(words: Sequence[Word]) -> EffectCommand:
    """Return a command to queue; raises `ConfigError` if it is not allowed."""
    return _command(words, WRITES, "queue", READS, "read it with .read(…)")


def reading(words: Sequence[Word]) -> EffectCommand:
    """Return a command to read with; raises `ConfigError` if it is not allowed."""
    return _command(words, READS, "read with", WRITES, "queue it with .queue(…)")


def _command(
    words: Sequence[Word], allowed: dict[str, _CommandKind], verb: str, others: dict[str, _CommandKind], remedy: str
) -> EffectCommand:
    name = str(words[0]).upper() if words else ""
    kind = allowed.get(name)
    if kind is None:
        if name not in others:
            remedy = (
                "allowed are commands of one or a few named keys, which neither block, nor scan, nor run scripts, nor "
                "depend on the time or on chance"
            )
        raise ConfigError(f"cannot {verb} {name or 'an empty command'} in a transaction: {remedy}")
    if not kind.least <= len(words) - 1 < _MOST_WORDS:
        raise ConfigError(f"{name}: a command has {kind.least} to {_MOST_WORDS - 1} words after its name: split it")
    encoded = [name.encode(), *map(_encoded, words[1:])]
    return EffectCommand(encoded, encoded[1:][kind.keys])


def _encoded(word: object) -> bytes:
    if isinstance(word, bytes):
        return word
    if isinstance(word, str):
        return word.encode()
    if isinstance(word, int | float) and not isinstance(word, bool):
        return repr(word).encode()
    raise ConfigError(f"a word of a command is str, bytes, int or float, not {type(word).__name__}: encode it first")
