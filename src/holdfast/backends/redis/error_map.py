"""Map errors of redis-py to errors of Holdfast, with the remedy in the message."""

from __future__ import annotations

from redis.exceptions import (
    AskError,
    AuthenticationError,
    BusyLoadingError,
    ClusterCrossSlotError,
    ClusterDownError,
    MasterDownError,
    MovedError,
    NoPermissionError,
    OutOfMemoryError,
    ReadOnlyError,
    RedisError,
    ResponseError,
    TryAgainError,
)

from holdfast.errors import (
    ConfigError,
    HoldfastError,
    OutcomeUnknown,
    PrivilegeMissing,
    SchemaMismatch,
    StoreError,
    StoreUnavailable,
)

REMEDIES = {
    "OOM": "its memory is full: enqueues are refused, workers go on; raise maxmemory, or keep less (completed_bytes=)",
    "BUSY": "another program's script runs for too long: end it with SCRIPT KILL, or the server if it has written",
    "LOADING": "it is loading its dataset; retry",
    "MASTERDOWN": "it has lost its primary: try again after the failover",
    "READONLY": "it is a replica: connect to the primary",
    "NOREPLICAS": "it has too few replicas (min-replicas-to-write): start them",
    "CLUSTERDOWN": "its cluster is down: try again",
    "MOVED": "the store's slot is on another node: connect to that one",
    "ASK": "the store's slot is being moved to another node: try again after the move",
    "TRYAGAIN": "the store's slot is being moved to another node: try again after the move",
    "MISCONF": "it cannot write to its disk: look at its log",
}
# The driver takes the first word off the replies that it knows.
_WORDS = {
    OutOfMemoryError: "OOM",
    BusyLoadingError: "LOADING",
    MasterDownError: "MASTERDOWN",
    ClusterDownError: "CLUSTERDOWN",
    ClusterCrossSlotError: "CROSSSLOT",
    ReadOnlyError: "READONLY",
    MovedError: "MOVED",
    AskError: "ASK",
    TryAgainError: "TRYAGAIN",
}
_REFUSED_IN_SCRIPTS = ("ACL failure in script", "The user executing the script can't")
RIGHTS = (
    "~{holdfast:*}:* &{holdfast:*}:* +@read +@write -@dangerous +eval +evalsha +script|load +time "
    "+publish +subscribe +info +config|get +wait +select +client|setname"
)
"""What a worker and a producer need. `+config|get` is only for the check of `durability=`, `+wait` for replicas."""
EFFECT_RIGHTS = "~{holdfast:*}/* +restore"
"""What handlers need besides to queue effects on keys of `key(…)`."""


def is_reply(error: BaseException) -> bool:
    """Return whether a server has answered with this error: nothing was written."""
    return isinstance(error, (ResponseError, BusyLoadingError))


def translate(error: Exception, where: str, *, writes: bool) -> HoldfastError:  # noqa: PLR0911 - a table of errors
    """Return the error to raise; `writes`: a command that may have been carried out had been sent."""
    text = str(error).strip() or type(error).__name__
    word = next((word for kind, word in _WORDS.items() if isinstance(error, kind)), text.partition(" ")[0].rstrip(":"))
    if isinstance(error, NoPermissionError) or word == "NOPERM" or any(each in text for each in _REFUSED_IN_SCRIPTS):
        return PrivilegeMissing(f"{where}: {text}; what it needs: ACL SETUSER <user> {RIGHTS}")
    if isinstance(error, AuthenticationError) or word in {"NOAUTH", "WRONGPASS"}:
        return StoreUnavailable(f"{where} refuses the user name or the password ({text})")
    if "non local key" in text:  # the reply to a script, in place of ASK
        word = "ASK"
    if word in REMEDIES:
        return StoreUnavailable(f"{where}: {REMEDIES[word]} ({text})")
    if "invalid flag" in text.lower() or "shebang" in text.lower():
        return SchemaMismatch(f"{where}: the server is too old: Redis 7.0 or Valkey 7.2 is needed ({text})")
    if word == "CROSSSLOT":
        return ConfigError(
            f"{where}: in a cluster, all keys of a transaction are in the store's hash slot: make them with .key(…) "
            "of what ctx.transaction() yields"
        )
    if is_reply(error):
        return StoreError(f"{where}: {text}")
    if writes:
        return OutcomeUnknown(f"{where}: the connection broke before the reply ({text})")
    if isinstance(error, (RedisError, OSError, TimeoutError)):
        return StoreUnavailable(f"{where} cannot be reached ({text})")
    return StoreError(f"{where}: {text} ({type(error).__name__})")
