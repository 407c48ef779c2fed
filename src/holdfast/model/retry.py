"""Retry policies: how long a job waits after a failed attempt. Pure: the randomness is passed in.

How many attempts a job has is not asked here; that is `max_attempts`. A policy only spaces them, or says never again.

| Policy                     | Wait after the n-th attempt                                          |
|----------------------------|----------------------------------------------------------------------|
| `Fixed(delay)`             | `delay`                                                              |
| `Linear(delay, cap)`       | `n * delay`, at most `cap`                                           |
| `Exponential(base, …)`     | `base * factor ** (n - 1)`, at most `cap`: the ceiling; then jitter  |
| `ByException({cls: …})`    | as the policy of the most specific class says                        |
| `Custom(function)`         | as `function(n, error)` says                                         |

**Jitter.** Jobs that failed together (a database restarted) would come back together and knock it over again.
`"full"` spreads them evenly between the floor and the ceiling, which puts the least load on what is recovering;
`"equal"` keeps half of the ceiling and spreads the other half; `"none"` waits for the ceiling exactly.

**A policy that breaks.** `delay` of a policy that a user wrote may raise anything. Whoever needs an answer in any case
calls `decide`, which never raises: it falls back to the default policy and says what went wrong, to be logged.
"""

from __future__ import annotations

import inspect
import math
from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping
from datetime import timedelta
from typing import Literal, cast

import msgspec

from holdfast.errors import ConfigError
from holdfast.model.duration import to_span

Jitter = Literal["full", "equal", "none"]
PolicyFunction = Callable[[int, BaseException | None], float | timedelta | None]

_HOUR = timedelta(hours=1)
_JITTERS = ("full", "equal", "none")


class RetryPolicy(ABC):
    """The base of retry policies; subclass it and pass an instance wherever a policy is taken."""

    __slots__ = ()

    @abstractmethod
    def delay(self, attempt: int, error: BaseException | None, draw: float) -> timedelta | None:
        """Return how long to wait after an attempt that failed, or None for never again.

        `attempt` is the number of used attempts, from 1; `error` is what ended the last one, if an exception did;
        `draw` is a random number in [0, 1), so that the same call has the same answer.
        """


class Fixed(RetryPolicy):
    """The same wait each time."""

    __slots__ = ("_delay",)

    def __init__(self, delay: float | timedelta) -> None:
        self._delay = to_span(delay, "the delay of Fixed")

    def delay(self, attempt: int, error: BaseException | None, draw: float) -> timedelta | None:  # noqa: ARG002
        """Return the one delay."""
        return self._delay

    def __repr__(self) -> str:
        return f"Fixed({self._delay.total_seconds():g})"


class Linear(RetryPolicy):
    """A wait that grows by `delay` with each attempt, up to `cap`."""

    __slots__ = ("_cap", "_delay")

    def __init__(self, delay: float | timedelta, cap: float | timedelta = _HOUR) -> None:
        self._delay = to_span(delay, "the delay of Linear").total_seconds()
        self._cap = _cap_above(cap, self._delay, "Linear", "delay")

    def delay(self, attempt: int, error: BaseException | None, draw: float) -> timedelta | None:  # noqa: ARG002
        """Return `attempt` times the delay, at most the cap."""
        return timedelta(seconds=min(attempt * self._delay, self._cap))

    def __repr__(self) -> str:
        return f"Linear({self._delay:g}, cap={self._cap:g})"


def _cap_above(cap: float | timedelta, least: float, policy: str, part: str) -> float:
    seconds = to_span(cap, f"the cap of {policy}").total_seconds()
    if math.isclose(seconds, least) or seconds > least:
        return seconds
    raise ConfigError(f"the cap of {policy} ({seconds:g} s) is below its {part} ({least:g} s): raise it")


class Exponential(RetryPolicy):
    """A wait whose ceiling is multiplied by `factor` with each attempt, up to `cap`.

    With `jitter="full"` the wait is drawn evenly from `floor` to the ceiling. A `floor` of 0 allows a retry at once.
    """

    __slots__ = ("_base", "_cap", "_factor", "_floor", "_jitter")

    def __init__(
        self,
        base: float | timedelta = 1,
        factor: float = 2,
        *,
        cap: float | timedelta = _HOUR,
        jitter: Jitter = "full",
        floor: float | timedelta = 0,
    ) -> None:
        self._base = to_span(base, "the base of Exponential").total_seconds()
        if isinstance(factor, bool) or not isinstance(factor, (int, float)):  # pyright: ignore[reportUnnecessaryIsInstance]
            raise ConfigError(f"the factor of Exponential is {factor!r}: pass a number, for example 2")
        if not 1 <= factor <= 1000:  # noqa: PLR2004 - NaN fails this too
            raise ConfigError(f"the factor of Exponential is {factor}: pass a number from 1 to 1000, for example 2")
        if jitter not in _JITTERS:
            raise ConfigError(f"the jitter of Exponential is {jitter!r}: pass one of {', '.join(map(repr, _JITTERS))}")
        self._factor = float(factor)
        self._cap = _cap_above(cap, self._base, "Exponential", "base")
        self._floor = to_span(floor, "the floor of Exponential").total_seconds()
        if self._floor > self._base:
            raise ConfigError(
                f"the floor of Exponential ({self._floor:g} s) is above its base ({self._base:g} s): "
                "pass a floor that the first retry can keep"
            )
        self._jitter = jitter

    def delay(self, attempt: int, error: BaseException | None, draw: float) -> timedelta | None:  # noqa: ARG002
        """Return the ceiling of this attempt, moved down by `draw` as the jitter says."""
        try:
            ceiling = min(self._base * self._factor ** (attempt - 1), self._cap)
        except OverflowError:  # beyond floats, so beyond any cap
            ceiling = self._cap
        if self._jitter == "none":
            return timedelta(seconds=ceiling)
        least = self._floor if self._jitter == "full" else max(self._floor, ceiling / 2)
        return timedelta(seconds=least + draw * (ceiling - least))

    def __repr__(self) -> str:
        return (
            f"Exponential({self._base:g}, {self._factor:g}, cap={self._cap:g}, "
            f"jitter={self._jitter!r}, floor={self._floor:g})"
        )


class ByException(RetryPolicy):
    """One policy per class of error: the most specific class of the error wins, `default` serves the rest.

    A value is whatever `policy_of` takes, except that None means: never again.
    """

    __slots__ = ("_default", "_policies")

    def __init__(self, policies: Mapping[type[BaseException], object], default: object = None) -> None:
        self._policies: dict[type, RetryPolicy | None] = {}
        for cls, policy in policies.items():
            if not _is_exception_class(cls):
                raise ConfigError(f"{cls!r} is not a class of exceptions: the keys of ByException are, like OSError")
            self._policies[cls] = None if policy is None else policy_of(policy)
        self._default = policy_of(default)

    def delay(self, attempt: int, error: BaseException | None, draw: float) -> timedelta | None:
        """Return what the policy for this error says."""
        for cls in type(error).__mro__:
            if cls in self._policies:
                policy = self._policies[cls]
                return None if policy is None else policy.delay(attempt, error, draw)
        return self._default.delay(attempt, error, draw)

    def __repr__(self) -> str:
        entries = ", ".join(f"{cls.__name__}: {policy!r}" for cls, policy in self._policies.items())
        return f"ByException({{{entries}}}, default={self._default!r})"


class Custom(RetryPolicy):
    """A function `(attempt, error) -> seconds | timedelta | None`; None means never again.

    `delay` lets through what the function raises, and raises ConfigError for an answer that is no duration.
    """

    __slots__ = ("_function",)

    def __init__(self, function: PolicyFunction) -> None:
        if inspect.iscoroutinefunction(function):
            raise ConfigError(f"retry policy {function!r} is asynchronous: pass a plain function, it is called in line")
        self._function = function

    def delay(self, attempt: int, error: BaseException | None, draw: float) -> timedelta | None:  # noqa: ARG002
        """Return what the function says, as a timedelta."""
        answer = self._function(attempt, error)
        return None if answer is None else to_span(answer, "the answer of the retry policy")

    def __repr__(self) -> str:
        return f"Custom({getattr(self._function, '__qualname__', self._function)})"


# The floor is there because the most common failure, a service that is restarting, is not over at once.
DEFAULT: RetryPolicy = Exponential(2, 2, cap=_HOUR, jitter="full", floor=1)


class RetryDecision(msgspec.Struct, frozen=True, gc=False):
    """What a policy decided: the wait (None: never again), and what was wrong with the policy, if anything."""

    delay: timedelta | None
    problem: str | None = None


def decide(policy: RetryPolicy, attempt: int, *, error: BaseException | None, draw: float) -> RetryDecision:
    """Ask a policy; if it raises or answers nonsense, ask the default policy and say so. Never raises."""
    try:
        delay = cast("object", policy.delay(attempt, error, draw))  # a user's subclass may return anything
        if delay is None:
            return RetryDecision(None)
        if not isinstance(delay, timedelta):
            raise ConfigError(f"the answer of the retry policy is {delay!r}: return a timedelta, or None")  # noqa: TRY301
        return RetryDecision(to_span(delay, "the answer of the retry policy"))
    except Exception as broken:  # noqa: BLE001 - it is reported in the decision
        problem = (
            f"retry policy {_shown(policy)} failed with {type(broken).__name__}: {_shown(broken)}; used the default"
        )
        return RetryDecision(DEFAULT.delay(attempt, error, draw), problem)


def policy_of(value: object = None) -> RetryPolicy:
    """Return the policy that `value` means.

    That is a policy itself, a number of seconds or a timedelta (the same wait each time), a function
    `(attempt, error) -> seconds | timedelta | None`, or None for the default: exponential from 2 seconds to an hour,
    with full jitter and a floor of 1 second.
    """
    if value is None:
        return DEFAULT
    if isinstance(value, RetryPolicy):
        return value
    if isinstance(value, type):
        raise ConfigError(f"retry policy {value.__name__} is a class: pass an instance of it")
    if isinstance(value, (int, float, timedelta)):
        return Fixed(to_span(value, "the retry delay"))
    if callable(value):
        return Custom(cast("PolicyFunction", value))
    raise ConfigError(
        f"{value!r} is not a retry policy: pass seconds, a timedelta, a policy such as Exponential(), "
        "or a function (attempt, error) -> seconds"
    )


def _is_exception_class(key: object) -> bool:
    return isinstance(key, type) and issubclass(key, BaseException)


def _shown(thing: object) -> str:
    """Return a short text for anything a user wrote, even if its own `__str__` is broken."""
    try:
        return str(thing)[:200]
    except Exception:  # noqa: BLE001 - the text is for a log line about something that is broken already
        return f"<{type(thing).__name__} without a text>"
