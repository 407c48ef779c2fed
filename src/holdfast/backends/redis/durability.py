"""What survives a crash: the levels, what the server must be set to for each, and the wait for replicas.

The levels `volatile`, `1s`, `fsync` and `replicated`, and what each keeps, are in docs/howto/redis.md.
`replicas=` adds the wait of `replicated` to another level.

An enqueue, and the effect of a handler, wait by WAIT, on the connection that has written. That command counts the
replicas that have the last write *of its connection*: on one that has written nothing it answers at once with all
replicas, however far they are behind. The repeat of an enqueue whose first attempt was written writes nothing. So each
wait follows a separate write. Replicas receive all writes in one order: one that has this write has all before it.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any, NamedTuple

from holdfast.backends.redis.location import RedisLocation
from holdfast.backends.redis.scripts import EFFECT, ENQUEUE, STAGE
from holdfast.backends.redis.steps import ScriptCall, Word
from holdfast.errors import ConfigError, OutcomeUnknown

VOLATILE, SECOND, FSYNC, REPLICATED = "volatile", "1s", "fsync", "replicated"
_ORDER = (VOLATILE, SECOND, FSYNC)
_SYNC = {"everysec": SECOND, "always": FSYNC}
_CONFIRMED = {ENQUEUE.name, STAGE.name, EFFECT.name}  # scripts whose reply says that jobs or effects are stored
_REMEDIES = {
    SECOND: "set appendonly yes, appendfsync everysec and no-appendfsync-on-rewrite no in the server's configuration",
    FSYNC: "set appendonly yes, appendfsync always and no-appendfsync-on-rewrite no in the server's configuration",
}
_MEANINGS = {
    VOLATILE: "none: without an append-only file that is synced, a crash of the server undoes what came since its last "
    "snapshot",
    SECOND: "an append-only file, synced every second: a crash of the machine may undo the last second or two",
    FSYNC: "an append-only file, synced before each reply",
    "": "an append-only file; the server does not say when it is synced (CONFIG GET appendfsync is not allowed)",
}


class Persistence(NamedTuple):
    """How a server keeps its data: `level` is the highest of `volatile`, `1s`, `fsync`; empty if it does not say."""

    level: str
    replicas: int

    @classmethod
    def of(cls, info: Mapping[str, str], settings: Mapping[str, str] | None) -> Persistence:
        """Return it, from INFO and CONFIG GET; `settings` is None if that is not allowed."""
        replicas = int(info.get("connected_slaves", "0"))
        if info.get("aof_enabled", "0") != "1":
            return cls(VOLATILE, replicas)
        if settings is None:
            return cls("", replicas)
        if settings.get("no-appendfsync-on-rewrite") == "yes":  # while the file is rewritten, nothing is synced
            return cls(VOLATILE, replicas)
        return cls(_SYNC.get(settings.get("appendfsync", ""), VOLATILE), replicas)

    def described(self, location: RedisLocation) -> str:
        """Return what survives, in words."""
        words = _MEANINGS[self.level]
        if location.replicas:
            words += f"; an enqueue is acknowledged when {_replicas(location.replicas)} it"
        return words


class Lack(NamedTuple):
    """What a server does not give: `is_certain` is False if it does not say, or if it may give it a moment later."""

    text: str
    remedy: str
    is_certain: bool


def lacks(location: RedisLocation, found: Persistence) -> Iterator[Lack]:
    """Yield what a server lacks for the level of the URL; without a level, for `1s`, and not for certain.

    `replicated` needs `1s`, too: a primary that restarts with an empty data set is copied by its replicas.
    """
    wanted = location.durability or SECOND
    if wanted == REPLICATED:
        wanted = SECOND
    if not found.level:
        yield from _unsaid(location.durability, wanted)
    elif found.level not in _ORDER[_ORDER.index(wanted) :]:
        yield _missing(location, wanted, found.level)
    if found.replicas < location.replicas:
        text = f"durability=replicated, and {found.replicas} of {location.replicas} replicas are connected"
        remedy = "start them: until then, each enqueue raises OutcomeUnknown"
        yield Lack(text, remedy, is_certain=False)


def _missing(location: RedisLocation, wanted: str, level: str) -> Lack:
    remedy = _REMEDIES[wanted]
    if location.durability is None:
        text = "the server does not keep its data: a crash loses jobs that were acknowledged"
        return Lack(text, f"{remedy}, or accept it with durability=volatile in the URL", is_certain=False)
    if location.durability == REPLICATED:
        text = (
            "durability=replicated, and the server may lose its data in a crash: "
            "after a restart its replicas copy the loss"
        )
        accepted = f"durability=volatile&replicas={location.replicas}"
        return Lack(text, f"{remedy}, or accept it with {accepted} in the URL", is_certain=False)
    text = f"durability={wanted}, and the server gives {level}"
    return Lack(text, f"{remedy}, or choose durability={level}", is_certain=True)


def _unsaid(level: str | None, wanted: str) -> Iterator[Lack]:
    if wanted == VOLATILE:
        return
    text = "the server does not say when it syncs: CONFIG GET is not allowed"
    remedy = f"allow it (ACL SETUSER … +config|get), or make sure of it: {_REMEDIES[wanted]}"
    if level is None:
        remedy += "; durability=volatile in the URL accepts whatever it does"
    else:
        text = f"durability={level}, and {text}"
    yield Lack(text, remedy, is_certain=False)


def require(location: RedisLocation, found: Persistence) -> list[str]:
    """Raise `ConfigError` if the server certainly lacks the level of the URL; return what else is to be warned of."""
    texts: list[str] = []
    for missing in lacks(location, found):
        texts.append(f"{location.url}: {missing.text}: {missing.remedy}")
        if missing.is_certain:
            raise ConfigError(texts[-1])
    return texts


def _replicas(number: int) -> str:
    return "a replica has" if number == 1 else f"{number} replicas have"


class Confirmation:
    """The wait for replicas, after the scripts that store jobs and effects."""

    def __init__(self, location: RedisLocation) -> None:
        self._url = location.url
        self._needed = location.replicas
        self.timeout = location.replica_timeout
        wait: tuple[Word, ...] = ("WAIT", self._needed, max(1, int(self.timeout * 1000)))
        self.commands: tuple[tuple[Word, ...], ...] = (("SET", f"{location.prefix}waited", 1), wait)
        """What follows the script, in one pipeline: a write, and the wait for it."""

    def follows(self, call: ScriptCall) -> bool:
        """Whether a call is acknowledged only with replicas."""
        return self._needed > 0 and (call.is_confirmed or (call.writes and call.script.name in _CONFIRMED))

    def checked(self, replies: Sequence[Any]) -> Any:
        """Return the reply to the script; raises it if it is an error, and `OutcomeUnknown` with too few replicas."""
        reply, *others = replies
        if isinstance(reply, Exception):
            raise reply
        if not others:
            return reply
        for error in others:
            if isinstance(error, Exception):
                raise OutcomeUnknown(f"{self._url}: stored, but not known to be replicated ({error})") from error
        if others[-1] < self._needed:
            raise OutcomeUnknown(
                f"{self._url}: stored, but only {others[-1]} of {self._needed} replicas confirmed it within "
                f"{self.timeout:g} s: a failover now would lose it; repeat it with the same ids"
            )
        return reply
