"""Deliberate bugs that a store always asked for its present hides: only looks that are old show them."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from tests.torture.simulation_planting import Mutants, Patch

from holdfast.model.job import Lease
from holdfast.store.values import Outstanding, Standing, Verdict
from holdfast.torture.simulation.store import Store
from holdfast.worker.in_flight import InFlight

MUTANTS = Mutants()


def older(store: Store, as_of: int) -> int:
    """Return an instant four times as long ago: before what whoever asks has been answered."""
    return max(as_of - 3 * (store._world.now - as_of), 0)


@MUTANTS.common
def what_is_verified_as_held_is_completed_without_its_fence(patch: Patch) -> None:
    """A stale verification is taken for the final word: in the same step the effect is written, whoever holds it."""
    real = Store.verify

    def verify(store: Store, who: str, lease: Lease, *, as_of: int) -> Standing:
        standing = real(store, who, lease, as_of=as_of)
        if standing is not Standing.HELD:
            return standing
        if store.commit(who, lease) is Verdict.LOST:
            store.judge.committed(lease, Verdict.DONE)
        return Standing.COMPLETED

    patch.setattr(Store, "verify", verify)


@MUTANTS.common
def a_verification_is_older_than_the_claim(patch: Patch) -> None:
    """A store says of a lease, from before it was given, that it is lost: so its end may be written, it seems."""
    real = Store.verify

    def verify(store: Store, who: str, lease: Lease, *, as_of: int) -> Standing:
        return real(store, who, lease, as_of=older(store, as_of))

    patch.setattr(Store, "verify", verify)


@MUTANTS.rare
def a_look_whether_all_is_done_is_older_than_the_claim(patch: Patch) -> None:
    """One look at emptiness is trusted, though the worker itself has been handed work since."""
    real = Store.outstanding

    def outstanding(store: Store, request: Any, *, as_of: int, claimed_at: int) -> Outstanding:
        return real(store, request, as_of=older(store, as_of), claimed_at=claimed_at)

    patch.setattr(Store, "outstanding", outstanding)


@MUTANTS.rarest(first=2450)
def a_cancellation_counts_for_later_claims_too(patch: Patch) -> None:
    """The fence of the lease that somebody asked to cancel is not compared with the present one."""
    real = InFlight.cancel_asked

    def cancel_asked(jobs: InFlight, now: float, leases: Iterable[Lease]) -> None:
        held = jobs.holdings.jobs
        real(jobs, now, [held[lease.seq].lease for lease in leases if lease.seq in held])

    patch.setattr(InFlight, "cancel_asked", cancel_asked)
