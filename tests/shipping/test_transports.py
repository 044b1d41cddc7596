"""The wire: what a stranger on the other end makes of it."""

from __future__ import annotations

import contextlib
import json
import socket
import threading
from concurrent.futures import ThreadPoolExecutor

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
                with contextlib.suppress(ConnectionResetError):  # the client may hang up with something unsent
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


def test_http__a_server_that_does_not_encrypt_is_refused_at_once(stranger):
    # broke: asked again for a minute, then "WRONG_VERSION_NUMBER"
    address = stranger(b"HTTP/1.1 400 Bad Request\r\nContent-Length: 0\r\n\r\n")
    with pytest.raises(RequestRefusedError, match=rf"does not answer encrypted; .* is reached at {address}$"):
        open_transport(address.replace("http", "https")).infer("model", Z, "1", 5)


def test_http__a_body_that_is_too_large_names_what_makes_it_smaller(stranger):
    said = b"HTTP/1.1 413 Content Too Large\r\nContent-Length: 4\r\n\r\nmuch"
    with pytest.raises(RequestRefusedError, match="HTTP 413: much; send fewer images in a request .*--batch-size"):
        open_transport(stranger(said)).infer("model", Z, "1", 5)


def test_http__a_server_that_hangs_up_may_be_asked_again(stranger):
    with pytest.raises(ServerUnreachableError):
        open_transport(stranger(b"")).infer("model", Z, "1", 5)


OUTPUT = {"name": "logits", "datatype": "FP32", "shape": [1, 2], "data": [0.5, 1]}


def answer_of(**changes):
    body = json.dumps({"outputs": [OUTPUT | changes]}).encode()
    return b"HTTP/1.1 200 OK\r\nContent-Length: %d\r\n\r\n%s" % (len(body), body)


def test_http__logits_are_float32(stranger):
    logits = open_transport(stranger(answer_of())).infer("model", Z, "1", 5)
    assert logits.dtype == np.float32 and logits.tolist() == [[0.5, 1.0]]


@pytest.mark.parametrize(
    "changes",
    [
        {"data": [10**400, 0]},
        {"data": [10**400, 0.5]},
        {"data": ["1", "2"]},
        {"data": [True, False]},
        {"datatype": "INT64"},
        {"datatype": None},
        {"shape": [10**30]},
    ],
)
def test_http__an_answer_that_is_no_tensor_of_floats_is_refused(stranger, changes):
    with pytest.raises(RequestRefusedError, match="is not one of the Open Inference Protocol"):
        open_transport(stranger(answer_of(**changes))).infer("model", Z, "1", 5)


@pytest.fixture
def grpc_stranger():
    """A function that makes a gRPC server with a behaviour of its own; it returns the address."""
    grpc = pytest.importorskip("grpc")
    stubs = pytest.importorskip("tritonclient.grpc.service_pb2_grpc")
    servers = []

    def listen(behave):
        server = grpc.server(ThreadPoolExecutor(1))
        servicer = stubs.GRPCInferenceServiceServicer()
        servicer.ModelInfer = behave
        stubs.add_GRPCInferenceServiceServicer_to_server(servicer, server)
        port = server.add_insecure_port("127.0.0.1:0")
        server.start()
        servers.append(server)
        return f"grpc://127.0.0.1:{port}"

    yield listen
    for each in servers:
        each.stop(None)


@pytest.mark.parametrize(
    ("code", "error"), [("INVALID_ARGUMENT", RequestRefusedError), ("UNAVAILABLE", ServerUnreachableError)]
)
def test_grpc__a_refusal_cannot_drive_the_terminal(grpc_stranger, code, error):
    import grpc

    address = grpc_stranger(lambda request, context: context.abort(grpc.StatusCode[code], "no\x1b[2J\x07\nway"))
    with pytest.raises(error, match=r"no\\x1b\[2J\\x07 way") as caught:
        open_transport(address).infer("model", Z, "1", 5)
    assert str(caught.value).isprintable()


def test_grpc__a_server_that_does_not_encrypt_is_refused_at_once(grpc_stranger):
    address = grpc_stranger(lambda request, context: None).removeprefix("grpc://")
    with pytest.raises(RequestRefusedError, match=rf"does not answer encrypted; .* is reached at grpc://{address}$"):
        open_transport(f"grpcs://{address}").infer("model", Z, "1", 5)


def test_grpc__a_message_that_is_too_large_names_what_makes_it_smaller(grpc_stranger):
    import grpc

    address = grpc_stranger(lambda request, context: context.abort(grpc.StatusCode.RESOURCE_EXHAUSTED, "much"))
    with pytest.raises(RequestRefusedError, match="refused: much; send fewer images in a request .*--batch-size"):
        open_transport(address).infer("model", Z, "1", 5)


@pytest.mark.parametrize("scheme", ["grpc://", ""])
def test_grpc__an_http_port_is_refused_at_once_and_named_as_the_mistake(stranger, scheme):
    pytest.importorskip("tritonclient.grpc")
    address = stranger(b"HTTP/1.1 400 Bad Request\r\nContent-Length: 0\r\nConnection: close\r\n\r\n")
    with pytest.raises(RequestRefusedError, match=f"does not answer in gRPC.* The HTTP port needs {address}"):
        open_transport(address.replace("http://", scheme)).infer("model", Z, "1", 5)


@pytest.mark.parametrize(
    ("datatype", "shape", "raw"),
    [
        ("BYTES", [1, 2], b"\1\0\0\0x" * 2),
        ("BYTES", [1, 2], b"\xff\xff\xff\xff"),
        ("BOOL", [1, 2], b"\1\1"),
        ("INT64", [1, 2], bytes(16)),
        ("WEIRD", [1, 2], bytes(16)),
        ("FP32", [1, 2], bytes(7)),
        ("FP32", [1, 2], None),
        ("FP32", [-1, -1], bytes(8)),
        ("FP32", [2**62, 2**62], bytes(8)),
    ],
)
def test_grpc__an_answer_that_is_no_tensor_of_floats_is_refused(grpc_stranger, datatype, shape, raw):
    def behave(request, context):
        from tritonclient.grpc import service_pb2

        answer = service_pb2.ModelInferResponse(model_name="model")
        answer.outputs.add(name="logits", datatype=datatype, shape=shape)
        answer.raw_output_contents.extend([] if raw is None else [raw])
        return answer

    with pytest.raises(RequestRefusedError, match="has no output 'logits' of float32"):
        open_transport(grpc_stranger(behave)).infer("model", Z, "1", 5)
