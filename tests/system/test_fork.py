"""A process that has opened its app and then forks."""

from __future__ import annotations

HALF = 25


def test_both_halves_of_a_forked_process_enqueue_through_connections_of_their_own(ledger, workers):
    program = workers.program("tests.system.apps.fork_program", str(HALF))
    assert program.end() == 0, program.text
    said = [line.split() for line in program.seen]
    for who in ("before", "parent", "child", "after"):
        assert sum(words[0] == who for words in said) == HALF, program.text
    assert sum("cannot be used here" in line for line in program.seen) == (2 if ledger.store.one_writer else 0)
    jobs = [words[1] for words in said if words[0] in {"before", "parent", "child", "after"}]
    workers.run_until_empty()
    assert len(set(jobs)) == 4 * HALF
    ledger.assert_once(jobs)
