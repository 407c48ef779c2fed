from __future__ import annotations

import pytest
from tests.unit.worker.driver import leased

from holdfast.worker.held_leases import HeldLeases


def holdings() -> HeldLeases:
    return HeldLeases(lease=30.0, extend_at=0.5)


def test_a_lease_is_due_at_its_share_of_the_lease_counted_from_the_sending_of_the_claim():
    held = holdings()
    held.add([leased(1)], 100.0)
    assert held.due(114.9) == []
    assert held.due(115.0) == [leased(1).lease]


def test_an_extension_counts_from_when_it_was_sent():
    held = holdings()
    held.add([leased(1)], 100.0)
    held.extended([leased(1).lease], 115.0)
    assert held.due(129.9) == []
    assert held.due(130.0) == [leased(1).lease]


def test_an_extension_of_an_earlier_fence_says_nothing_of_a_later_one():
    held = holdings()
    held.add([leased(1, fence=2)], 100.0)
    held.extended([leased(1, fence=1).lease], 120.0)
    assert held.due(121.0) == [leased(1, fence=2).lease]


def test_a_lease_called_lost_is_not_extended_again_but_one_being_settled_is():
    held = holdings()
    held.add([leased(1), leased(2)], 100.0)
    held.settling(2)
    held.lost([leased(1).lease, leased(2).lease])
    assert held.due(120.0) == [leased(2).lease]


def test_a_settled_job_is_held_no_longer_and_one_rolled_back_is():
    held = holdings()
    held.add([leased(1), leased(2)], 100.0)
    for seq in (1, 2):
        held.settling(seq)
    held.settled(1)
    held.unsettled(2)
    assert held.due(120.0) == [leased(2).lease]
    held.lost([leased(2).lease])
    assert held.due(120.0) == []


def test_what_a_former_attempt_at_a_job_has_to_say_does_not_touch_the_later_one():
    held = holdings()
    held.add([leased(1, fence=1)], 100.0)
    former = held.of(leased(1, fence=1))
    former.settling(1)
    held.add([leased(1, fence=2)], 110.0)
    later = held.of(leased(1, fence=2))
    later.settling(1)
    former.unsettled(1)
    assert held.settling_seqs == {1}
    former.settled(1)
    assert (held.jobs, held.settling_seqs) == ({1: leased(1, fence=2)}, {1})
    later.unsettled(1)
    former.settling(1)
    assert held.settling_seqs == set()
    later.settled(1)
    assert held.jobs == {}


@pytest.mark.parametrize("ends_late", [True, False])
def test_no_mark_of_settling_is_left_by_an_attempt_that_is_held_no_more(ends_late):
    held = holdings()
    held.add([leased(1, fence=1)], 100.0)
    former = held.of(leased(1, fence=1))
    former.settling(1)
    held.drop(1)
    if ends_late:
        held.add([leased(1, fence=2)], 110.0)
    former.unsettled(1)
    former.settling(1)
    assert held.settling_seqs == set()


def test_memory_does_not_grow_with_the_number_of_claims():
    held = holdings()
    for fence in range(1, 10_000):
        held.add([leased(fence, fence)], float(fence))
        held.drop(fence)
    assert len(held.sent) < 200
    held.add([leased(1, 20_000)], 0.0)
    held.extended([leased(seq).lease for seq in range(1000)], 1.0)
    held.due(2.0)
    assert len(held._extended) == 1
