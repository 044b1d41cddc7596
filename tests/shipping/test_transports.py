"""The wire: what a stranger on the other end makes of it."""

from __future__ import annotations

import socket
import threading

import numpy as np
import pytest

from attention_cem.shipping import RequestRefusedError, ServerUnreachableError, open_transport

Z = np.zeros((1, 2), np.float32)
# What a gRPC server says first: an HTTP/2 settings frame, then that it goes away.
SETTINGS = b"\x00\x00\x12\x04\x00\x00\x00\x00\x00\x00\x03\x7f\xff\xff\xff\x00\x04\x00\x40\x00\x00\x1b[2J\x07"


@pytest.fixture
def stranger():
    """A function that makes a server saying some bytes to whoever connects, once; it returns the address."""
    sockets = []

    def listen(said):
        listening = socket.create_server(("127.0.0.1", 0))
        sockets.append(listening)

        def answer():
            connection, _ = listening.accept()
            with connection:
                connection.recv(65536)
                connection.sendall(said)
                connection.shutdown(socket.SHUT_WR)
                while connection.recv(65536):  # closed with something unread, the connection would be reset
                    pass

        threading.Thread(target=answer, daemon=True).start()
        return f"http://127.0.0.1:{listening.getsockname()[1]}"

    yield listen
    for each in sockets:
        each.close()


def test_http__a_grpc_port_is_named_as_the_likely_mistake_and_its_bytes_are_escaped(stranger):
    with pytest.raises(RequestRefusedError, match=r"is this the HTTP port\?") as caught:
        open_transport(stranger(SETTINGS)).infer("model", Z, "1", 5)
    assert str(caught.value).isprintable() and "\\x00" in str(caught.value)


def test_http__a_refusal_cannot_drive_the_terminal(stranger):
    said = b"HTTP/1.1 400 Bad Request\r\nContent-Length: 8\r\n\r\nno\x1b[2J\r\n"
    with pytest.raises(RequestRefusedError, match="HTTP 400: no") as caught:
        open_transport(stranger(said)).infer("model", Z, "1", 5)
    assert str(caught.value).isprintable()


def test_http__a_server_that_hangs_up_may_be_asked_again(stranger):
    with pytest.raises(ServerUnreachableError):
        open_transport(stranger(b"")).infer("model", Z, "1", 5)
