"""Mutants of unique keys."""

from __future__ import annotations

from tests.torture.mutants.mutant import POSTGRES, SQLITE, mutant
from tests.torture.mutants.patching import Code

_MODEL = "holdfast.model.unique"

UNIQUE = (
    mutant(
        "unique_key_is_always_free",
        POSTGRES,
        "an enqueue takes its unique key whether another job holds it or not",
        Code(f"{_MODEL}:decide", "if not holder.holds(now):", "if True:"),
        caught_by="I27",
    ),
    mutant(
        "kept_job_is_named_wrongly",
        SQLITE,
        "a caller that finds its unique key held gets the id of the job that was not enqueued",
        Code(
            "holdfast.store.verbs.unique:_Round._decide",
            "case KeyDecision.KEEP:\n            self.answers[index] = holder.id",
            "case KeyDecision.KEEP:\n            self.answers[index] = job.id",
        ),
        caught_by="I1",
    ),
)
