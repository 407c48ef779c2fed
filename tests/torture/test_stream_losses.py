"""Events that are parked because their nodes died: only after so many losses of the share in a row (I16)."""

from __future__ import annotations

import pytest
from tests.torture.stream_stories import StreamTale

from holdfast.torture.streams.names import PARK, POISON, USUAL

FIGURE = "events parked for lost nodes"


def waiting(*, name: str = USUAL) -> StreamTale:
    """Two events of one stream; the share stands before the first, and w1 has generation 1."""
    return StreamTale(PARK).appended("a", "a", name=name)


def lost(tale: StreamTale, times: int, *, generation: int = 1, epoch: int = 1) -> int:
    """Let nodes lose the share and be granted it again; return the generation after that."""
    for _ in range(times):
        generation += 2
        tale.step(generation, "granted", "free", generation=generation - 1, node="w1", epoch=epoch)
        tale.step(generation, "free", "granted", generation=generation, node="w1")
    return generation


def given_back(tale: StreamTale, times: int, *, generation: int = 1) -> int:
    for _ in range(times):
        tale.step(generation, "granted", "free", generation=generation, node="w1", epoch=0)
        generation += 1
        tale.step(generation, "free", "granted", generation=generation, node="w1")
    return generation


def blamed(tale: StreamTale, generation: int, *, position: int = 1) -> StreamTale:
    """Park an event for its lost nodes, under a generation, with the one behind it."""
    tale.committed(80, position - 1, position, generation=generation).parked(position, "a", "NodeLost")
    return tale.parked(position + 1, "a").committed(81, position, position + 1, generation=generation)


@pytest.mark.parametrize("epoch", [1, 0])  # taken by the leader, or because the node was started anew
@pytest.mark.parametrize(("times", "broken"), [(7, []), (6, []), (5, ["I16"]), (1, ["I16"]), (0, ["I16"])])
def test_an_event_is_parked_for_its_lost_nodes_only_after_six_losses_in_a_row(times, broken, epoch):
    tale = waiting()
    verdict = blamed(tale, lost(tale, times, epoch=epoch)).checked()

    assert verdict.broken == broken
    assert verdict.figures[FIGURE] == 1


def test_an_event_that_fails_for_good_is_not_parked_for_lost_nodes_either():
    tale = waiting(name=POISON)

    assert blamed(tale, lost(tale, 2)).checked().broken == ["I16"]


def test_a_wrong_blame_is_told_once_and_not_of_each_event_behind_it():
    tale = waiting()
    (violation,) = blamed(tale, lost(tale, 3)).checked().violations

    assert "position 1 is parked for lost nodes, and its share was lost 3 times in a row at most" in violation.what


def test_a_share_that_is_given_back_is_not_lost():
    tale = waiting()

    assert blamed(tale, lost(tale, 5, generation=given_back(tale, 9))).checked().broken == ["I16"]


@pytest.mark.parametrize("by_effect", [True, False])
def test_losses_before_a_step_forward_do_not_count(by_effect):
    tale = StreamTale(PARK).appended("b", "a", "a")
    generation = lost(tale, 5)
    if by_effect:  # whose commit was not written down: its node died
        tale.effect(1, generation=generation)
    else:
        tale.committed(50, 0, 1, generation=generation).effect(1, generation=1)
    blamed(tale, lost(tale, 5, generation=generation), position=2)

    assert tale.checked().broken == ["I16"]


def test_that_an_event_is_about_to_be_tried_is_no_step_forward():
    tale = waiting()
    generation = lost(tale, 3)
    tale.committed(40, 0, 0, generation=generation)

    assert blamed(tale, lost(tale, 3, generation=generation)).checked().is_clean


@pytest.mark.parametrize(("generation", "broken"), [(13, []), (11, ["I16"])])
def test_what_the_store_has_forgotten_may_have_been_losses_but_each_takes_two_generations(generation, broken):
    tale = waiting()
    tale.step(70, "free", "granted", generation=generation, node="w2", skips=generation)

    assert blamed(tale, generation).checked().broken == broken


@pytest.mark.parametrize(("times", "broken"), [(6, []), (5, ["I16"])])
def test_a_node_that_died_before_it_told_of_the_parking_has_parked_before_the_next_step(times, broken):
    tale = StreamTale(PARK).appended("a", "b")
    generation = lost(tale, times)
    tale.parked(1, "a", "NodeLost").effect(2, generation=generation)
    lost(tale, 9, generation=generation)

    assert tale.checked().broken == broken
