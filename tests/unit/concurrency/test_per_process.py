"""What each process has for itself."""

from __future__ import annotations

import os
import threading
import time

import pytest

from holdfast.concurrency.per_process import PerProcess, check_usable, refusing


def test_it_is_made_once_though_many_threads_ask_at_once():
    made: list[object] = []

    def make() -> object:
        time.sleep(0.05)
        made.append(object())
        return made[-1]

    held = PerProcess(make)
    found: list[object] = []
    threads = [threading.Thread(target=lambda: found.append(held.here)) for _ in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert len(made) == 1
    assert found == made * 8


def test_what_was_taken_is_made_anew():
    held = PerProcess(object)
    assert held.take() is None
    first = held.here
    assert held.take() is first
    assert held.take() is None
    assert held.here is not first


def test_a_forked_child_makes_its_own_though_the_parent_was_making_one_and_never_takes_its_parents():
    pids = PerProcess(os.getpid)
    assert pids.here == os.getpid()
    begun, go_on = threading.Event(), threading.Event()

    def make() -> int:
        begun.set()
        assert go_on.wait(10)
        return 0

    slow = threading.Thread(target=lambda: PerProcess(make).here)
    slow.start()
    begun.wait()
    child = os.fork()
    if child == 0:
        os._exit(0 if pids.take() is None and pids.here == os.getpid() else 1)
    go_on.set()
    slow.join()
    assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 0
    assert pids.here == os.getpid()


def test_while_use_is_refused_nothing_is_made_or_found_in_any_thread_and_afterwards_all_is_as_before():
    made = PerProcess(object)
    before = made.here
    seen: list[type[BaseException]] = []

    def use(held: PerProcess[object]) -> None:
        try:
            held.here  # noqa: B018
        except LookupError as error:
            seen.append(type(error))

    with refusing(LookupError):
        for held in (made, PerProcess(object)):
            use(held)
            thread = threading.Thread(target=use, args=(held,))
            thread.start()
            thread.join()
        with pytest.raises(LookupError):
            check_usable()
    assert seen == [LookupError] * 4
    check_usable()
    assert made.here is before
