"""Map errors of redis-py to errors of Holdfast, with the remedy in the message."""

from __future__ import annotations

from redis.exceptions import AuthenticationError, NoPermissionError, RedisError, ResponseError

from holdfast.errors import (
    HoldfastError,
    OutcomeUnknown,
    PrivilegeMissing,
    SchemaMismatch,
    StoreError,
    StoreUnavailable,
)

_REMEDIES = {
    "OOM": "its memory is full: enqueues are refused, workers go on; raise maxmemory, or keep less (completed_bytes=)",
    "BUSY": "somebody's script runs for too long: end it with SCRIPT KILL",
    "LOADING": "it loads its data after a start: try again",
    "MASTERDOWN": "it has lost its primary: try again after the failover",
    "READONLY": "it is a replica: connect to the primary",
    "NOREPLICAS": "it has too few replicas (min-replicas-to-write): start them",
    "CLUSTERDOWN": "its cluster is down: try again",
    "MOVED": "the store's slot is on another node: connect to that one",
    "ASK": "the store's slot is being moved to another node: try again after the move",
    "TRYAGAIN": "the store's slot is being moved to another node: try again after the move",
    "MISCONF": "it cannot write to its disk: look at its log",
}
_PRIVILEGES = (
    "ACL SETUSER <user> ~{holdfast:*}:* &{holdfast:*}:* +@read +@write +@scripting +@connection +@pubsub +time +info"
)


def is_reply(error: BaseException) -> bool:
    """Return whether a server has answered with this error: nothing was written."""
    return isinstance(error, ResponseError) or str(error).startswith("LOADING")


def translate(error: Exception, where: str, *, writes: bool) -> HoldfastError:  # noqa: PLR0911 - a table of errors
    """Return the error to raise; `writes`: a command that may have been carried out had been sent."""
    text = str(error).strip() or type(error).__name__
    word = text.partition(" ")[0].rstrip(":")
    if isinstance(error, NoPermissionError) or word == "NOPERM":
        return PrivilegeMissing(f"{where}: {text}; what a worker needs: {_PRIVILEGES}")
    if isinstance(error, AuthenticationError) or word in {"NOAUTH", "WRONGPASS"}:
        return StoreUnavailable(f"{where} refuses the user name or the password ({text})")
    if word in _REMEDIES:
        return StoreUnavailable(f"{where}: {_REMEDIES[word]} ({text})")
    if "invalid flag" in text.lower() or "shebang" in text.lower():
        return SchemaMismatch(f"{where}: the server is too old: Redis 7.0 or Valkey 7.2 is needed ({text})")
    if is_reply(error):
        return StoreError(f"{where}: {text}")
    if writes:
        return OutcomeUnknown(f"{where}: the connection broke before the reply ({text})")
    if isinstance(error, (RedisError, OSError, TimeoutError)):
        return StoreUnavailable(f"{where} cannot be reached ({text})")
    return StoreError(f"{where}: {text} ({type(error).__name__})")
