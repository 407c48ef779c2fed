"""The error for an unknown setting: the setting that was probably meant, and all settings."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from difflib import get_close_matches
from typing import Final

from holdfast.errors import ConfigError
from holdfast.runtime.other_queues import NOT_SETTINGS

_RENAMED: Final = {"patience": "release_timeout"}  # names of earlier versions
# Names that other queues use for the same: (what it is called here, what is different about it).
_ELSEWHERE: Final = {
    "autoretry_for": ("retry", "every exception is retried; ByException chooses by class"),
    "backend": ("url", "one store holds the jobs and their results"),
    "backoff": ("retry", "pass Exponential(…)"),
    "broker": ("url", "one store holds the jobs and their results"),
    "broker_url": ("url", "one store holds the jobs and their results"),
    "countdown": ("delay", ""),
    "default_retry_delay": ("retry", "seconds, or a policy such as Exponential()"),
    "eta": ("run_at", "an aware datetime"),
    "max_retries": ("max_attempts", "it counts the first attempt too"),
    "queue_name": ("queue", ""),
    "result_backend": ("url", "one store holds the jobs and their results"),
    "retries": ("max_attempts", "it counts the first attempt too"),
    "retry_backoff": ("retry", "pass Exponential(…)"),
    "retry_delay": ("retry", "seconds, or a policy such as Exponential()"),
    "soft_time_limit": ("timeout", ""),
    "task_id": ("job_id", "a UUID"),
    "time_limit": ("timeout", ""),
}


def refuse_unknown(where: str, given: Iterable[str], known: Sequence[str]) -> None:
    """Raise `ConfigError` for the first name that is not known, with its new name or the one that was meant."""
    for name in given:
        if name not in known:
            renamed = _RENAMED.get(name)
            if renamed in known:
                raise ConfigError(f"{where}: the setting {name} is called {renamed} now")
            if name in NOT_SETTINGS:
                raise ConfigError(f"{where}: there is no setting {name}: {NOT_SETTINGS[name]}")
            raise ConfigError(f"{where}: there is no setting {name}: {_meant(name, known)} {', '.join(known)}")


def meant_setting(name: str, known: Sequence[str]) -> str | None:
    """Return the setting that is called so, here or in another queue."""
    meant = name if name in known else _ELSEWHERE.get(name, ("", ""))[0]
    return meant if meant in known else None


def _meant(name: str, known: Sequence[str]) -> str:
    meant, difference = _ELSEWHERE.get(name, ("", ""))
    if meant in known:
        return f"did you mean {meant}{f' ({difference})' if difference else ''}? There are"
    close = get_close_matches(name.lower(), known, 1)
    return f"did you mean {close[0]}? There are" if close else "there are"
