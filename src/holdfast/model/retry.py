"""Retry policies: the delay after a failed attempt. Pure: random numbers are passed in.

A policy decides when the next attempt starts, or that there is none. `max_attempts` limits their number independently.

```text
   attempt n fails ──▶ policy.delay(n, error) ──▶ a duration: scheduled, attempt n + 1 follows
                                              └─▶ None: failed, however many attempts are left
```

| Policy                     | Delay after the n-th attempt                                         |
|----------------------------|----------------------------------------------------------------------|
| `Fixed(delay)`             | `delay`                                                              |
| `Linear(delay, cap)`       | `n * delay`, at most `cap`                                           |
| `Exponential(base, …)`     | `base * factor ** (n - 1)`, at most `cap`: the ceiling; then jitter  |
| `ByException({cls: …})`    | the delay of the policy for the error's most specific class          |
| `Custom(function)`         | the value of `function(n, error)`                                    |

**Jitter.** Jobs that failed together, because a database restarted, would all be retried at the same moment and
overload it again. `"equal"`, the default, keeps half of the ceiling and spreads the other half, so that no retry comes
long before the delay that was asked for. `"full"` spreads the retries evenly between the floor and the ceiling, which
puts the least load on a recovering service; `"none"` uses the ceiling itself.

**A broken policy.** The `delay` of a user's policy may raise anything. The worker calls `decide`, which never raises:
it falls back to the default policy and returns a description of the problem for the log.
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
    """The base of retry policies; an instance of a subclass is accepted wherever a policy is."""

    __slots__ = ()

    @abstractmethod
    def delay(self, attempt: int, error: BaseException | None, draw: float) -> timedelta | None:
        """Return the delay after a failed attempt, or None for no further attempt.

        `attempt` is the number of used attempts, starting at 1. `error` is the exception that ended the last one, if
        one did. `draw` is a random number in [0, 1), passed in so that the result is reproducible.
        """


RetrySetting = RetryPolicy | float | timedelta | PolicyFunction | None
"""What the setting `retry` of a task or a consumer accepts; see `policy_of`."""


class Fixed(RetryPolicy):
    """The same delay after every attempt."""

    __slots__ = ("_delay",)

    def __init__(self, delay: float | timedelta) -> None:
        self._delay = to_span(delay, "the delay of Fixed")

    def delay(self, attempt: int, error: BaseException | None, draw: float) -> timedelta | None:  # noqa: ARG002
        """Return the fixed delay."""
        return self._delay

    def __repr__(self) -> str:
        return f"Fixed({self._delay.total_seconds():g})"


class Linear(RetryPolicy):
    """A delay that grows by `delay` with each attempt, up to `cap`."""

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
    """A delay whose ceiling is multiplied by `factor` with each attempt, up to `cap`.

    The delay is drawn evenly from half of the ceiling to the ceiling: with `base=1` the first retry comes after 0.5 to
    1 second. With `jitter="full"` it is drawn from `floor`, and a `floor` of 0 allows a retry at once.
    """

    __slots__ = ("_base", "_cap", "_factor", "_floor", "_jitter")

    def __init__(
        self,
        base: float | timedelta = 1,
        factor: float = 2,
        *,
        cap: float | timedelta = _HOUR,
        jitter: Jitter = "equal",
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
                "pass a floor of at most the base"
            )
        self._jitter = jitter

    def delay(self, attempt: int, error: BaseException | None, draw: float) -> timedelta | None:  # noqa: ARG002
        """Return the ceiling for this attempt, reduced by `draw` according to the jitter."""
        try:
            ceiling = min(self._base * self._factor ** (attempt - 1), self._cap)
        except OverflowError:  # beyond the range of floats, so beyond any cap
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
    """One policy per exception class: the error's most specific class applies, and `default` covers the rest.

    Values are what `policy_of` accepts, except that None means no further attempt.
    """

    __slots__ = ("_default", "_policies")

    def __init__(self, policies: Mapping[type[BaseException], object], default: object = None) -> None:
        self._policies: dict[type, RetryPolicy | None] = {}
        for cls, policy in policies.items():
            if not _is_exception_class(cls):
                raise ConfigError(f"{cls!r} is not an exception class: use classes such as OSError as keys")
            self._policies[cls] = None if policy is None else policy_of(policy)
        self._default = policy_of(default)

    def delay(self, attempt: int, error: BaseException | None, draw: float) -> timedelta | None:
        """Return the delay of the policy for this error."""
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
            raise ConfigError(f"retry policy {function!r} is a coroutine function: pass a plain function")
        self._function = function

    def delay(self, attempt: int, error: BaseException | None, draw: float) -> timedelta | None:  # noqa: ARG002
        """Return the function's result as a timedelta."""
        delay = self._function(attempt, error)
        return None if delay is None else to_span(delay, "the delay of the retry policy")

    def __repr__(self) -> str:
        return f"Custom({getattr(self._function, '__qualname__', self._function)})"


# The floor helps with the most common failure: a service that is restarting needs a moment to come back.
DEFAULT: RetryPolicy = Exponential(2, 2, cap=_HOUR, jitter="full", floor=1)


class RetryDecision(msgspec.Struct, frozen=True, gc=False):
    """The decision of a policy: the delay (None: no further attempt), and the problem with the policy, if any."""

    delay: timedelta | None
    problem: str | None = None


def decide(policy: RetryPolicy, attempt: int, *, error: BaseException | None, draw: float) -> RetryDecision:
    """Evaluate a policy; if it raises or returns something invalid, use the default and report that. Never raises."""
    try:
        delay = cast("object", policy.delay(attempt, error, draw))  # a user's subclass may return anything
        if delay is None:
            return RetryDecision(None)
        if not isinstance(delay, timedelta):
            raise ConfigError(f"the delay of the retry policy is {delay!r}: return a timedelta, or None")  # noqa: TRY301
        return RetryDecision(to_span(delay, "the delay of the retry policy"))
    except Exception as broken:  # noqa: BLE001 - the decision reports it
        problem = (
            f"retry policy {_shown(policy)} failed with {type(broken).__name__}: {_shown(broken)}; used the default"
        )
        return RetryDecision(DEFAULT.delay(attempt, error, draw), problem)


def policy_of(value: object = None) -> RetryPolicy:
    """Return the policy that `value` stands for; raise `ConfigError` if it is not one.

    Accepted are a policy, a number of seconds or a timedelta (the same delay every time), a function
    `(attempt, error) -> seconds | timedelta | None`, and None for the default: exponential from 2 seconds to an hour,
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
    """Return a short text for any object, even if its `__str__` is broken."""
    try:
        return str(thing)[:200]
    except Exception:  # noqa: BLE001 - the text is for a log line about a broken object
        return f"<{type(thing).__name__} whose __str__ fails>"
