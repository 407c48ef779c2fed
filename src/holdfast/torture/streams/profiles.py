"""The sizes of stream runs."""

from __future__ import annotations

from typing import Final

import msgspec

from holdfast.errors import ConfigError
from holdfast.torture.plan import PROFILES, Fault, Profile

_SMOKE: Final = Profile(
    jobs=2000,
    seconds=10.0,
    limit=25.0,
    drain=60.0,
    workers=3,
    producers=2,
    faults={
        Fault.KILL: 3,
        Fault.FAILPOINT: 2,
        Fault.STOP: 2,
        Fault.TERM: 1,
        Fault.CUT: 2,
        Fault.COMMIT: 2,
        Fault.STATEMENT: 2,
        Fault.TERMINATE: 1,
        Fault.RESTART: 1,
    },
)
_STANDARD: Final = Profile(
    jobs=50_000,
    seconds=150.0,
    limit=300.0,
    drain=180.0,
    workers=3,
    producers=2,
    faults={
        Fault.KILL: 25,
        Fault.FAILPOINT: 15,
        Fault.STOP: 20,
        Fault.TERM: 6,
        Fault.CUT: 25,
        Fault.COMMIT: 15,
        Fault.STATEMENT: 15,
        Fault.TERMINATE: 10,
        Fault.RESTART: 2,
    },
)
_RELEASE: Final = Profile(
    jobs=200_000,
    seconds=360.0,
    limit=720.0,
    drain=300.0,
    workers=4,
    producers=2,
    faults={
        Fault.KILL: 75,
        Fault.FAILPOINT: 40,
        Fault.STOP: 55,
        Fault.TERM: 12,
        Fault.CUT: 80,
        Fault.COMMIT: 40,
        Fault.STATEMENT: 40,
        Fault.TERMINATE: 30,
        Fault.RESTART: 4,
    },
)
_RELEASE_ONE_WRITER: Final = msgspec.structs.replace(
    _RELEASE,
    jobs=50_000,
    workers=3,
    faults={Fault.KILL: 60, Fault.FAILPOINT: 40, Fault.STOP: 50, Fault.TERM: 12},
)


def stream_profile_of(name: str, *, one_writer: bool) -> Profile:
    """Return the profile of this name, as `profile_of` does; its `jobs` are events."""
    match name:
        case "smoke":
            return _SMOKE
        case "standard":
            return _STANDARD
        case "release":
            return _RELEASE_ONE_WRITER if one_writer else _RELEASE
        case _:
            raise ConfigError(f"no profile {name!r}; choose one of {', '.join(PROFILES)}")
