"""The list of invariants. A feature with new guarantees adds its invariants here."""

from __future__ import annotations

from holdfast.torture.checker.attempts import AttemptsCounted
from holdfast.torture.checker.counts import Batches, Conservation
from holdfast.torture.checker.doubles import NoDouble, NoPhantom
from holdfast.torture.checker.due import Due
from holdfast.torture.checker.endings import Absorbing, CleanFailure, NoLoss
from holdfast.torture.checker.fences import Fences
from holdfast.torture.checker.graphs import AfterParents
from holdfast.torture.checker.hygiene import Hygiene
from holdfast.torture.checker.invariant import Invariant
from holdfast.torture.checker.keys import OneOfAKey
from holdfast.torture.checker.leases import NoTheft, OneHolder
from holdfast.torture.checker.limits import WithinLimits
from holdfast.torture.checker.order import Turns
from holdfast.torture.checker.paced import PacedQueues
from holdfast.torture.checker.pauses import Pauses
from holdfast.torture.checker.recovery import Recovery
from holdfast.torture.checker.schedules import OncePerTime
from holdfast.torture.checker.unique import OneUnfinished

INVARIANTS: tuple[type[Invariant], ...] = (
    NoLoss,
    NoDouble,
    NoPhantom,
    CleanFailure,
    AttemptsCounted,
    Fences,
    OneHolder,
    Absorbing,
    Recovery,
    OneOfAKey,
    OneUnfinished,
    AfterParents,
    WithinLimits,
    OncePerTime,
    PacedQueues,
    Due,
    Conservation,
    Batches,
    Hygiene,
    Turns,
    NoTheft,
    Pauses,
)
