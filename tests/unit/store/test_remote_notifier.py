"""Notifications that the sender thread is about to send."""

from __future__ import annotations

from collections.abc import Collection

from holdfast.store.remote_notifier import RemoteNotifier


class Resting:
    """A sender in the pause after a notification."""

    rest = 60.0

    def __init__(self) -> None:
        self.tried: list[str] = []

    def try_now(self, kind: str) -> bool:
        self.tried.append(kind)
        return False

    def send(self, kinds: Collection[str]) -> None:
        raise AssertionError(kinds)

    def close(self) -> None:
        pass


def test_a_notification_of_a_kind_that_waits_to_be_sent_costs_nothing_more():
    sender = Resting()
    notifier = RemoteNotifier("store", lambda _: None, sender)
    for kind in ("jobs", "jobs", "ends", "ends", "jobs"):
        notifier.notify_others(kind)
    notifier.close()
    assert sender.tried == ["jobs", "ends"]
