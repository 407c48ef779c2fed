from __future__ import annotations

import socket

import pytest

from holdfast.worker.job_child.program import ParentConnection
from holdfast.worker.job_child.protocol import Began


@pytest.mark.parametrize("unread", [False, True])
def test_a_child_hears_that_its_worker_is_gone_whatever_that_has_left_unread(unread):
    mine, workers = socket.socketpair()
    link = ParentConnection(mine.detach())
    if unread:
        link.send(Began())
    workers.close()

    assert list(link.messages()) == []
    link._socket.close()
