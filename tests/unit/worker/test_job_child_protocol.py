"""What a worker and a job child say to one another arrives as it was said, however it is cut up."""

from __future__ import annotations

import itertools
from datetime import timedelta

import pytest
from hypothesis import given
from hypothesis import strategies as st

from holdfast.model.job import LeasedJob
from holdfast.model.outcome import Cancelled, Completed, Failed, Failure, Lost, Retried, Snoozed
from holdfast.worker.decision import Why
from holdfast.worker.job_child.protocol import (
    Began,
    CompletionStage,
    Frames,
    Hello,
    JobEnded,
    MainFile,
    NoMoreJobs,
    Notice,
    RunJob,
    Settlement,
    Unready,
    encode,
    from_child,
    to_child,
)

JOB = LeasedJob(
    id="0190",
    seq=7,
    queue="mail",
    task="send",
    payload='[[],{"to":"ä\\u0000€"}]',
    headers={"trace": "1"},
    priority=-3,
    max_attempts=5,
    timeout=1.5,
    _enqueued_us=2**53 + 1,
    turn=-1,
    attempt=2,
    excused=1,
    interrupted=0,
    lost=1,
    fence=2**62,
)
FAILURE = Failure("ValueError", "no\n“such”\x00thing", "Traceback …", "0011223344556677")
TO_CHILD = [
    Hello(1, [b"", b"/a b", b"/not-text-\xff"], MainFile(b"/x/\xfe.py", "pkg")),
    Hello(1, [], None),
    Hello(1, [], None, store=b"postgresql://ada:s3cret@db/shop"),
    RunJob("shop.tasks", "Mail.send", "send", JOB, timedelta(seconds=30, microseconds=1)),
    Notice(Why.CANCEL_ASKED),
    Notice(Why.LEASE_LOST),
    NoMoreJobs(),
]
FROM_CHILD = [
    Began(),
    Unready("module 'x' cannot be imported"),
    *(Settlement(stage) for stage in CompletionStage),
    JobEnded(None, clean=True),
    *(
        JobEnded(outcome, clean=False)
        for outcome in (
            Completed('{"a": 1}'),
            Completed(),
            Retried(timedelta(days=400, microseconds=3), FAILURE),
            Snoozed(timedelta(0)),
            Failed(FAILURE),
            Cancelled("enough"),
            Lost(FAILURE),
        )
    ),
]


@pytest.mark.parametrize("message", TO_CHILD, ids=repr)
def test_what_the_worker_says_arrives_as_it_was_said(message):
    assert list(Frames(to_child).feed(encode(message))) == [message]


@pytest.mark.parametrize("message", FROM_CHILD, ids=repr)
def test_what_the_child_says_arrives_as_it_was_said(message):
    assert list(Frames(from_child).feed(encode(message))) == [message]


@given(messages=st.lists(st.sampled_from(FROM_CHILD)), cuts=st.lists(st.integers(0, 5000)))
def test_messages_arrive_whole_and_in_order_wherever_the_pieces_break(messages, cuts):
    data = b"".join(encode(message) for message in messages)
    bounds = [0, *sorted(min(cut, len(data)) for cut in cuts), len(data)]
    frames = Frames(from_child)
    pieces = [data[start:end] for start, end in itertools.pairwise(bounds)]
    assert [message for piece in pieces for message in frames.feed(piece)] == messages


def test_the_password_of_the_store_is_not_shown():
    assert "s3cret" not in repr(Hello(1, [], None, store=b"postgresql://ada:s3cret@db/shop"))


def test_a_message_that_is_not_whole_is_not_handed_out():
    frames = Frames(to_child)
    data = encode(NoMoreJobs())
    assert list(frames.feed(data[:-1])) == []
    assert list(frames.feed(data[-1:])) == [NoMoreJobs()]


@pytest.mark.parametrize(
    "data",
    [
        b"\xff\xff\xff\xffprinted by accident",
        b"\x00\x00\x00\x02{]",
        b'\x00\x00\x00\x10{"type":"Stolen"}'[:20],
        encode(Began()),
    ],
    ids=["absurd length", "not JSON", "unknown message", "the other side's message"],
)
def test_what_is_no_message_is_refused(data):
    with pytest.raises(ValueError):  # noqa: PT011 - the decoder's words are its own
        list(Frames(to_child).feed(data))
