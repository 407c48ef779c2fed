"""The messages of a MySQL client as the proxy sees them, and the cuts that it makes at them."""

from __future__ import annotations

import re
from collections.abc import Iterator

import pymysql
import pytest
from hypothesis import given
from hypothesis import strategies as st
from tests.servers import mysql

from holdfast.torture.mysql_wire import MysqlRequests, MysqlWire
from holdfast.torture.proxy import Proxy, When


def packed(number: int, body: bytes) -> bytes:
    return len(body).to_bytes(3, "little") + bytes([number]) + body


@given(st.lists(st.tuples(st.integers(0, 3), st.binary(max_size=20)), max_size=5), st.integers(1, 30))
def test_whatever_the_pieces_are_each_packet_is_passed_on_once_and_whole(packets, size: int):
    sent = [packed(number, body) for number, body in packets]
    stream = b"".join(sent)
    requests = MysqlRequests()
    pieces = [stream[at : at + size] for at in range(0, len(stream), size)]
    assert [packet for piece in pieces for packet, _ in requests.feed(piece)] == sent


def test_the_text_of_a_query_is_seen_and_that_of_a_log_in_is_not():
    requests = MysqlRequests()
    assert [text for _, text in requests.feed(packed(1, b"\x03select 1") + packed(0, b"\x03select 2"))] == [
        None,
        "select 2",
    ]


def test_nothing_is_seen_once_a_client_has_asked_for_tls():
    requests = MysqlRequests()
    asked = packed(1, b"\x00\x0a" + bytes(30))
    assert list(requests.feed(asked)) == [(asked, None)]
    after = packed(0, b"\x03commit")
    assert list(requests.feed(after)) == [(after, None)]


@pytest.mark.parametrize(
    ("statement", "writes", "commits"),
    [
        ("update a set b = 1", True, False),
        ("begin;insert into a values (1);commit", True, True),
        ("begin;insert into a values (1)", False, False),
        ("insert into a values ('begin');commit", True, True),
        ("begin;select 1 from a for update;commit", False, True),
        ("select 1 from a for update skip locked", False, False),
        ("commit", False, True),
        ("rollback", False, False),
    ],
)
def test_what_commits_by_itself_is_one_write_or_a_whole_transaction(statement: str, writes: bool, commits: bool):
    wire = MysqlWire()
    assert bool(re.search(wire.writes, statement, re.IGNORECASE | re.DOTALL)) is writes
    assert bool(re.search(wire.commit, statement, re.IGNORECASE | re.DOTALL)) is commits


@pytest.fixture
def database(flavour: mysql.Flavour) -> Iterator[str]:
    with mysql.own_database(flavour) as url:
        mysql.run(url, "create table a (b int) engine = innodb")
        yield url


@pytest.fixture(params=["mariadb", pytest.param("mysql", marks=pytest.mark.slow)])
def flavour(request: pytest.FixtureRequest) -> mysql.Flavour:
    chosen: mysql.Flavour = request.param
    return chosen


@pytest.fixture
def proxy(database: str) -> Iterator[Proxy]:
    proxy = Proxy(database, MysqlWire())
    yield proxy
    proxy.close()


@pytest.mark.parametrize(("when", "rows"), [("before", 0), ("after", 1)])
@pytest.mark.parametrize("statement", ["commit", "begin;insert into a values (1);select 1;commit"])
def test_a_commit_is_cut_before_or_after_the_server_has_it(
    proxy: Proxy, database: str, when: When, rows: int, statement: str
):
    connection = mysql.connect(proxy.url, autocommit=False)
    with connection.cursor() as cursor:
        if statement == "commit":
            cursor.execute("insert into a values (1)")
        proxy.arm(when)
        with pytest.raises(pymysql.MySQLError):  # noqa: PT012
            cursor.execute(statement)
            while cursor.nextset():
                pass
    assert proxy.cut_within(10)
    assert (proxy.cuts, proxy.cuts_alone, proxy.links_cut) == (1, 0, 1)
    assert mysql.run(database, "select count(*) from a") == [(rows,)]


@pytest.mark.parametrize(("when", "rows"), [("before", 0), ("after", 1)])
@pytest.mark.parametrize("statement", ["insert into a values (1)", "begin;insert into a values (1);commit"])
def test_a_message_that_commits_by_itself_is_cut_and_one_inside_a_transaction_is_not(
    proxy: Proxy, database: str, when: When, rows: int, statement: str
):
    connection = mysql.connect(proxy.url)
    proxy.arm(when, alone=True)
    with connection.cursor() as cursor:
        cursor.execute("begin")
        cursor.execute("insert into a values (7)")
        cursor.execute("rollback")
        with pytest.raises(pymysql.MySQLError):  # noqa: PT012
            cursor.execute(statement)
            while cursor.nextset():
                pass
    assert proxy.cut_within(10, alone=True)
    assert proxy.cuts_alone == 1
    assert mysql.run(database, "select count(*) from a") == [(rows,)]
