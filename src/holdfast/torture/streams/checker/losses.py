"""How often a share can have been lost while it stood before an event.

An event is held to have taken its nodes down after so many losses of its share in a row, without a step forward. What
the store counts as a loss need not be a death, and a death need not be in the history as one: a share is lost by a
node that is silent (killed, frozen, cut off, or kept from reporting by a server that was down), that does not give it
back in time, or that has been started anew. So exits say too little. But whatever the reason, each loss makes the
generation of the share grow by one, and so does the grant that must come before the next; a share that is given back
leaves it as it is. Generations are in effects and commits, and none is ever missing between two of them. So the
history tells how many losses there can have been at most, even where the store has forgotten steps.
"""

from __future__ import annotations

from holdfast.torture.streams.checker.history import Share, StreamStory

GUILTY_AFTER = 6
"""So many losses in a row, and the next event counts as failed for good."""
_DONE, _GRANTED = "done", "granted"


def most_losses(story: StreamStory, share: Share, position: int) -> int:
    """Return how often at most a share was lost between its last step before a position and the one past it.

    It is too much rather than too little: one that left by itself with shares in its hands looks like one that was lost
    when it started anew, and of what nobody knows the worst is believed.
    """
    since, until = _since(story, share, position), _until(story, share, position)
    granted = {step.generation for step in story.transitions if step.share == share and step.new_state == _GRANTED}
    may_be_losses = sum(generation not in granted for generation in range(since + 1, until + 1))
    return min(may_be_losses, (until - since) // 2)


def _since(story: StreamStory, share: Share, position: int) -> int:
    """Return the greatest generation under which the share surely came nearer: what was lost before is forgotten."""
    steps = (commit for commit in story.commits.get(share, ()) if commit.verdict == _DONE)
    nearer = [step.generation for step in steps if step.after < step.position < position]
    took = [effect.generation for effect in story.effects.get(share, ()) if effect.position < position]
    return max(nearer + took, default=0)


def _until(story: StreamStory, share: Share, position: int) -> int:
    """Return the smallest generation under which the share is known to have been past the position."""
    steps = (commit for commit in story.commits.get(share, ()) if commit.verdict == _DONE)
    past = [step.generation for step in steps if step.position >= position]
    took = [effect.generation for effect in story.effects.get(share, ()) if effect.position > position]
    return min(past + took, default=story.shares[share].generation)
