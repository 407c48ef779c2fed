from __future__ import annotations

from holdfast.model.declarations import PATIENCE, PERIOD, Disputes


def looked(disputes: Disputes, start: float, end: float, **disputed: int) -> dict[str, int]:
    """Look every period; return what is overruled at the end."""
    now = start
    while now <= end:
        disputes.observed(now, disputed)
        now += PERIOD
    return disputes.overruled(now)


def test_what_nobody_confirms_is_overruled_after_a_while():
    disputes = Disputes()
    assert looked(disputes, 0, PATIENCE - 2 * PERIOD, tidy=7) == {}
    assert looked(disputes, PATIENCE - PERIOD, PATIENCE, tidy=7) == {"tidy": 7}


def test_a_confirmation_starts_the_watch_again():
    disputes = Disputes()
    looked(disputes, 0, PATIENCE - PERIOD, tidy=7)
    assert looked(disputes, PATIENCE, PATIENCE + PERIOD, tidy=8) == {}


def test_nothing_is_overruled_after_a_gap_in_which_nobody_could_confirm():
    disputes = Disputes()
    assert looked(disputes, 0, PATIENCE, tidy=7) == {"tidy": 7}
    assert disputes.overruled(10 * PATIENCE) == {}
    disputes.observed(10 * PATIENCE, {"tidy": 7})
    assert disputes.overruled(10 * PATIENCE + PERIOD) == {}


def test_nothing_is_overruled_after_a_failed_call():
    disputes = Disputes()
    looked(disputes, 0, PATIENCE, tidy=7)
    disputes.failed()
    assert disputes.overruled(PATIENCE + PERIOD) == {}


def test_what_is_settled_is_forgotten():
    disputes = Disputes()
    looked(disputes, 0, PATIENCE, tidy=7)
    disputes.observed(PATIENCE + PERIOD, {})
    assert disputes.overruled(PATIENCE + PERIOD) == {}
