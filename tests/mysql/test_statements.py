"""How values are put into statements, and statements into messages."""

from __future__ import annotations

import pytest
from tests.servers import mysql

from holdfast.backends.mysql.connecting import connect_blocking
from holdfast.backends.mysql.driver import drop
from holdfast.backends.mysql.location import MysqlLocation
from holdfast.backends.mysql.statements import TEMPLATES, MysqlStatements, quoted, trips
from holdfast.backends.sql.files import SHARED, own_statements
from holdfast.backends.sql.steps import Each

HOSTILE = [
    "'; drop table holdfast_job; --",
    "\\",
    "\\'",
    "a\0b",
    "100%",
    "%s",
    ":name",
    "größe 🙂",
    'say "so"',
    "a\nb\r\x1a",
]

FOREIGN = ("::", " any(", "lateral", "on conflict", "excluded.", "for no key", "key share", "materialized", "{schema}")


@pytest.mark.parametrize("text", HOSTILE)
def test_a_text_comes_back_as_it_was_given(url: str, text: str):
    connection = connect_blocking(MysqlLocation.parse(url))
    try:
        (found,) = connection.ask([f"select {quoted(text)}"])
    finally:
        drop(connection)
    assert found.rows == ((text,),)


def test_rows_of_one_insert_travel_in_one_statement_and_other_statements_one_for_each_row():
    statements = MysqlStatements(lambda: 7)
    rows = [{"seq": 1}, {"seq": 2}]

    assert statements.each(Each("record_change", rows)) == ["insert into holdfast_parent_change (seq) values (1),(2)"]
    assert statements.each(Each("leave_running", rows)) == [
        "delete from holdfast_running where seq = 1",
        "delete from holdfast_running where seq = 2",
    ]


def test_an_insert_of_much_text_is_divided_long_before_the_smallest_packet_of_a_server():
    rows = [{"lane_id": 1, "turn": 1, "seq": 1, "payload_bytes": 0, "followed": 0}] * 100_000
    made = MysqlStatements(None).each(Each("insert_ready", rows))

    assert len(made) > 1
    assert max(map(len, made)) < 600_000
    assert [len(group) for group in trips(made)] == [1] * len(made)


def test_an_insert_whose_texts_the_driver_puts_in_is_divided_as_well():
    numbers = dict.fromkeys(("category_id", "partition_id", "position_id", "version", "recorded_at"), 1)
    row = {**numbers, "stream": "s", "event_id": "e", "event_name": "n", "payload": "x" * 10_000, "headers": None}
    asked = Each("add_event", [row] * 300)
    statements = MysqlStatements(None)

    rows_of = [text.count("'s'") for text in statements.each(asked)]
    assert sum(rows_of) == 300
    assert [text.count("\0") for text in statements.each(asked, lambda _: "\0")] == [4 * number for number in rows_of]


def test_an_empty_list_finds_nothing():
    assert MysqlStatements(None).filled("known_ids", {"ids": []}) == ["select id from holdfast_job where id in (null)"]


@pytest.mark.parametrize("name", sorted(own_statements(SHARED)))
def test_a_shared_statement_is_translated_as_a_whole(name: str):
    text = TEMPLATES[name]
    assert [foreign for foreign in FOREIGN if foreign in text] == []


@pytest.mark.parametrize("word", ["insert ignore", "returning", "temporary", " md5(", "load data", " xa ", ":="])
def test_no_statement_uses_what_the_servers_differ_in_or_hide_errors_behind(word: str):
    """`insert ignore` turns errors into warnings; variables and temporary tables pin a connection of a proxy."""
    assert [name for name, text in TEMPLATES.items() if word in text.lower()] == []


def test_the_servers_clock_is_independent_of_the_time_zone(url: str):
    connection = mysql.connect(url)
    try:
        with connection.cursor() as cursor:
            seen = []
            for zone in ("+00:00", "+13:00", "-11:30"):
                cursor.execute(f"set session time_zone = '{zone}'")
                cursor.execute(*MysqlStatements(None).filled("store_clock", {}))
                seen.append(cursor.fetchone()[0])
    finally:
        connection.close()
    assert max(seen) - min(seen) < 60_000_000
