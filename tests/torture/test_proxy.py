"""The proxy that cuts links: what it leaves behind when it ends."""

from __future__ import annotations

import gc
import socket
import threading
import time
import warnings

from holdfast.torture.proxy import Proxy


def swallow(listener: socket.socket) -> None:
    """Accept and read, as a server does, until the listener is closed."""
    taken: list[socket.socket] = []
    try:
        while True:
            taken.append(listener.accept()[0])
    except OSError:
        for each in taken:
            each.close()


def test_no_socket_outlives_a_proxy_that_ends_while_its_links_do():
    listener = socket.create_server(("127.0.0.1", 0))
    server = threading.Thread(target=swallow, args=(listener,))
    server.start()
    with warnings.catch_warnings(record=True) as told:
        warnings.simplefilter("always")
        for _ in range(40):
            proxy = Proxy(f"postgresql://127.0.0.1:{listener.getsockname()[1]}/x")
            port = int(proxy.url.rsplit(":", 1)[1].split("/")[0])
            clients = [socket.create_connection(("127.0.0.1", port)) for _ in range(5)]
            while proxy.links < len(clients) - 1:  # the last one may still be on its way
                time.sleep(0.001)
            for client in clients:
                client.close()
            proxy.close()
        gc.collect()
    listener.shutdown(socket.SHUT_RDWR)
    listener.close()
    server.join()
    assert [str(warning.message) for warning in told if issubclass(warning.category, ResourceWarning)] == []
