"""The sizes of stream runs; `jobs` are events."""

from __future__ import annotations

from typing import Final

import msgspec

from holdfast.torture.plan import Profile, Profiles, faults_of

_SMOKE: Final = Profile(
    jobs=2000,
    seconds=10.0,
    limit=25.0,
    drain=60.0,
    workers=3,
    producers=2,
    faults=faults_of(kill=3, failpoint=2, stop=2, term=1, cut=2, commit=2, statement=2, terminate=1, restart=1),
)
_STANDARD: Final = Profile(
    jobs=50_000,
    seconds=150.0,
    limit=300.0,
    drain=180.0,
    workers=3,
    producers=2,
    faults=faults_of(
        kill=25, failpoint=15, stop=20, term=6, cut=25, commit=15, statement=15, terminate=10, restart=2, server_stop=1
    ),
)
_RELEASE: Final = Profile(
    jobs=200_000,
    seconds=360.0,
    limit=720.0,
    drain=300.0,
    workers=4,
    producers=2,
    faults=faults_of(
        kill=75, failpoint=40, stop=55, term=12, cut=80, commit=40, statement=40, terminate=30, restart=4, server_stop=2
    ),
)
_RELEASE_ONE_WRITER: Final = msgspec.structs.replace(
    _RELEASE,
    jobs=50_000,
    workers=3,
    faults=faults_of(kill=60, failpoint=40, stop=50, term=12),
)

BROKER_FAULTS: Final = {
    "smoke": faults_of(broker=1),
    "standard": faults_of(broker=3, broker_stop=1),
    "release": faults_of(broker=10, broker_stop=4),
}
"""How often the broker is killed and stopped, by profile, if the run has started one for its events."""
stream_profile_of = Profiles(_SMOKE, _STANDARD, _RELEASE, _RELEASE_ONE_WRITER).of
