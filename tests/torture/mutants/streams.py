"""Mutants of streams: fences dropped from commits and moves, effects and positions torn apart.

Those whose `under` names a module of the conformance suite are caught there, at less cost than by a run.
"""

from __future__ import annotations

from typing import Final

from tests.torture.mutants.mutant import POSTGRES, SQLITE, SQLITE_AND_KAFKA, Mutant, mutant
from tests.torture.mutants.patching import Code, Sql

CONFORMANCE: Final = "conformance"
"""What catches a mutant that no run is needed for."""
_CONSUMERS = "holdfast.backends.sql.streams.consumers"
_SHARES = "holdfast.backends.sql.streams.shares"
_LIFE = "holdfast.runtime.effect:_Life"
_NO_COMMIT = Code(
    f"{_LIFE}._end",
    "verdict = await self._calls.verdict(effect.write_end(transaction))",
    "from holdfast.store.stream_values import CommitVerdict; verdict = CommitVerdict.DONE",
)
_COMMITS_APART = (
    "    verdict = await self._calls.run(effect.backend.streams.consumers.commit(effect.grant, effect.commit))\n"
    "    if not effect.is_accepted(verdict):\n"
    "        raise await self._calls.run(effect.refusal(verdict))\n"
)

_STREAMS: Final = (
    mutant(
        "commit_without_generation",
        SQLITE,
        "a former owner of a share can commit its position",
        Sql(SQLITE, "commit_position", "and generation = :generation ", ""),
        Sql(SQLITE, "find_granted", "and generation = :generation ", ""),
        Sql(SQLITE, "lock_granted", "and generation = :generation ", ""),
        caught_by=CONFORMANCE,
        under="test_fencing",
    ),
    mutant(
        "commit_from_anywhere",
        SQLITE,
        "a commit moves the position whatever it was before",
        Sql(SQLITE, "commit_position", " and position_id = :after", ""),
        caught_by=CONFORMANCE,
        under="test_commit",
    ),
    mutant(
        "allocate_without_epoch",
        SQLITE,
        "a leader that was replaced continues to move shares",
        Code(f"{_SHARES}:move_shares", "not (yield from hold_leadership(leadership))", "False"),
        caught_by=CONFORMANCE,
        under="test_fencing",
    ),
    mutant(
        "seize_from_the_living",
        SQLITE,
        "a share is seized without a check that its owner is silent",
        Code("holdfast.model.move_guard:_is_true", "is_silent(node.since, node.ttl, grace)", "True"),
        caught_by=CONFORMANCE,
        under="test_allocation",
    ),
    mutant(
        "release_by_whoever_drops_it",
        SQLITE,
        "a node that has lost a share releases it, whichever node owns it now",
        Sql(SQLITE, "lock_granted_share", " and generation = :generation", ""),
        Code(
            "holdfast.streams.share_consumer:ShareConsumer._run",
            "if not self._is_dropped:\n        with",
            "if True:\n        with",
        ),
        caught_by=CONFORMANCE,
        under="test_fencing",
    ),
    mutant(
        "append_without_the_lock",
        POSTGRES,
        "an append takes positions without locking the heads of its partitions",
        Sql(POSTGRES, "lock_heads", "    for update\n", ""),
        caught_by=CONFORMANCE,
        under="test_append or test_visibility",
    ),
    mutant(
        "commit_though_nothing_was_moved",
        POSTGRES,
        "the COMMIT that is sent with a position takes effect although the grant is stale",
        Sql(POSTGRES, "commit_position_or_fail", "when count(*) = 1 then", "when true then"),
        caught_by=CONFORMANCE,
        under="test_transactions",
    ),
    mutant(
        "position_before_the_effect",
        SQLITE,
        "ctx.transaction() commits the position first, and the effect in a separate transaction",
        Code(
            f"{_LIFE}.__aenter__",
            "    self._opening = self._calls.begin(effect, self._isolation)",
            f"{_COMMITS_APART}    self._opening = self._calls.begin(effect, self._isolation)",
        ),
        _NO_COMMIT,
        caught_by="I16",
        under="kills",
    ),
    mutant(
        "effect_before_the_position",
        SQLITE,
        "ctx.transaction() commits the effect, and the position in a second step",
        Code(
            f"{_LIFE}.__aexit__",
            "    if self._ends:\n        effect.committed()",
            f"{_COMMITS_APART}    effect.committed()",
        ),
        _NO_COMMIT,
        caught_by="I16",
        under="kills",
    ),
    mutant(
        "park_without_the_position",
        SQLITE,
        "an event is parked, and the position does not move past it",
        Code(
            f"{_CONSUMERS}:commit",
            "CommitVerdict.UNPARKED\n    return (",
            "CommitVerdict.UNPARKED\n    return CommitVerdict.DONE if step.parks else (",
        ),
        caught_by=CONFORMANCE,
        under="test_parking",
    ),
    mutant(
        "epoch_not_raised",
        SQLITE,
        "a node that takes leadership leads under the epoch of its predecessor",
        Code("holdfast.backends.sql.streams.leadership:lead", "else row.epoch + 1", "else max(1, row.epoch)"),
        caught_by="I18",
        under="kills",
    ),
    mutant(
        "grant_under_the_same_generation",
        SQLITE,
        "the generation of a share does not grow when it is granted",
        Code(
            "holdfast.backends.sql.streams.share_rows:granted",
            "generation=row.generation + 1",
            "generation=row.generation",
        ),
        caught_by="I15 I16 I17",
        under="terms",
    ),
    mutant(
        "append_leaves_a_hole",
        POSTGRES,
        "an append of many takes one position more than it needs",
        Sql(POSTGRES, "append_events", "ended.position_id + ended.steps,", "ended.position_id + ended.steps + 1,"),
        caught_by="I1",
        under="calm",
    ),
)
_IN_KAFKA: Final = (
    mutant(
        "read_on_past_a_record",
        SQLITE_AND_KAFKA,
        "a partition is read from one record past the position of its grant",
        Code("holdfast.backends.kafka.reading:KafkaReader._assign", "buffer.read_to)", "buffer.read_to + 1)"),
        caught_by="I16",
        under="kills",
    ),
    mutant(
        "position_of_the_record_before",
        SQLITE_AND_KAFKA,
        "the position of an event is the offset of its record, so it is read again under the next grant",
        Code("holdfast.backends.kafka.envelope:event_of", "position=offset + 1", "position=offset"),
        caught_by="I1 I16",
        under="kills",
    ),
)
STREAM_MUTANTS: Final[dict[str, Mutant]] = {one.name: one for one in (*_STREAMS, *_IN_KAFKA)}
