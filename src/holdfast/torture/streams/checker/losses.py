"""How often a share can have been lost before an event.

An event is considered to kill its nodes after a number of losses of its share in a row without progress. What the store
counts as a loss need not be a death, and a death need not be recorded as one: a share is lost by a node that is silent
(killed, frozen, cut off, or without heartbeats because the server was down), that does not release it in time, or that
was restarted. So exits are not enough. But each loss, for any reason, increments the generation of the share, and so
does the grant that must precede the next; a release leaves it unchanged. Effects and commits carry the generation, and
none is missing between two of them. So the history bounds the number of losses from above, even where the store has
discarded transitions.
"""

from __future__ import annotations

from holdfast.torture.streams.checker.facts import Share, StreamFacts

FAILED_AFTER = 6
"""After this many losses in a row the next event counts as failed permanently."""
_DONE, _GRANTED = "done", "granted"


def most_losses(facts: StreamFacts, share: Share, position: int) -> int:
    """Return at most how often a share was lost between its last progress before a position and the one past it.

    It may be too high, never too low: a node that left with shares looks like one that was lost and restarted, and the
    unknown counts as the worst case.
    """
    since, until = _since(facts, share, position), _until(facts, share, position)
    granted = {step.generation for step in facts.transitions if step.share == share and step.new_state == _GRANTED}
    may_be_losses = sum(generation not in granted for generation in range(since + 1, until + 1))
    return min(may_be_losses, (until - since) // 2)


def _since(facts: StreamFacts, share: Share, position: int) -> int:
    """Return the greatest generation under which the share certainly advanced: earlier losses no longer count."""
    steps = (commit for commit in facts.commits.get(share, ()) if commit.verdict == _DONE)
    nearer = [step.generation for step in steps if step.after < step.position < position]
    took = [effect.generation for effect in facts.effects.get(share, ()) if effect.position < position]
    return max(nearer + took, default=0)


def _until(facts: StreamFacts, share: Share, position: int) -> int:
    """Return the smallest generation under which the share is known to have been past the position."""
    steps = (commit for commit in facts.commits.get(share, ()) if commit.verdict == _DONE)
    past = [step.generation for step in steps if step.position >= position]
    took = [effect.generation for effect in facts.effects.get(share, ()) if effect.position > position]
    return min(past + took, default=facts.shares[share].generation)
