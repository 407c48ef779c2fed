"""The mock cluster inside the client library: it answers requests with the errors that a test wants.

The Python client does not expose it, so the library that it ships is called directly.
"""

from __future__ import annotations

import ctypes
from collections.abc import Generator
from contextlib import contextmanager
from pathlib import Path

import confluent_kafka

PRODUCE, FETCH = 0, 1
"""Kinds of requests, by their numbers in the protocol."""
_PRODUCER = 0


class MockCluster:
    """A cluster of one broker. Topics are created when they are asked for."""

    def __init__(self, library: ctypes.CDLL, handle: int, servers: str) -> None:
        self._library = library
        self._handle = ctypes.c_void_p(handle)
        self.url = f"kafka://{servers}/"

    def answer(self, request: int, *errors: int) -> None:
        """Answer the next requests of a kind with errors."""
        codes = (ctypes.c_int(error) for error in errors)
        self._library.rd_kafka_mock_push_request_errors(
            self._handle, ctypes.c_int16(request), ctypes.c_size_t(len(errors)), *codes
        )


@contextmanager
def mock_cluster() -> Generator[MockCluster]:
    """Start a mock cluster, and end it with the block."""
    (path,) = (Path(confluent_kafka.__file__).parents[1] / "confluent_kafka.libs").glob("librdkafka*.so*")
    library = ctypes.CDLL(str(path))
    for name in ("rd_kafka_conf_new", "rd_kafka_new", "rd_kafka_mock_cluster_new"):
        getattr(library, name).restype = ctypes.c_void_p
    library.rd_kafka_mock_cluster_bootstraps.restype = ctypes.c_char_p
    error = ctypes.create_string_buffer(200)
    conf = ctypes.c_void_p(library.rd_kafka_conf_new())
    client = ctypes.c_void_p(library.rd_kafka_new(_PRODUCER, conf, error, ctypes.c_size_t(200)))
    handle = library.rd_kafka_mock_cluster_new(client, 1)
    servers = library.rd_kafka_mock_cluster_bootstraps(ctypes.c_void_p(handle)).decode()
    try:
        yield MockCluster(library, handle, servers)
    finally:
        library.rd_kafka_mock_cluster_destroy(ctypes.c_void_p(handle))
        library.rd_kafka_destroy(client)
