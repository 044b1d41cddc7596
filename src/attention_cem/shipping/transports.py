"""The wire: one inference over gRPC (NVIDIA's client) or HTTP with JSON tensors, and which failures may pass."""

from __future__ import annotations

import http.client
import json
import ssl
import sys
import threading
from pathlib import Path
from typing import Any, Protocol
from urllib.parse import urlsplit

import numpy as np
from numpy.typing import NDArray

from attention_cem.shipping.bundle import FEATURE, LOGITS, SERVER_HALF
from attention_cem.shipping.serve_settings import is_loopback, network_address

_SCHEMES = {"grpc": 8081, "grpcs": 8081, "http": 8080, "https": 8080}
_LARGEST_ANSWER = 64 * 2**20
_NO_GRPC_SERVER = ("Trying to connect an http1.x server", "missing selected ALPN property")
"""What gRPC's own client says when the other end speaks HTTP/1, in the clear and encrypted."""
_NO_TLS_SERVER = "WRONG_VERSION_NUMBER"
"""What OpenSSL and BoringSSL say when the other end does not encrypt."""
_FEWER = "; send fewer images in a request (batch_size, --batch-size)"


class RequestRefusedError(ValueError):
    """The server understood and said no, or cannot be trusted; asking again would not help."""


class ServerUnreachableError(ConnectionError):
    """No answer: the server is away, busy or too slow; asking again may help."""


class Transport(Protocol):
    """One way to reach a server."""

    def infer(
        self, model: str, z: NDArray[np.float32], request_id: str, timeout: float, server_sha256: str | None = None
    ) -> NDArray[np.float32]:
        """Logits for ``z``; one attempt.

        Args:
            model: its name on the wire.
            z: the features.
            request_id: the same at every attempt.
            timeout: in seconds.
            server_sha256: of the server half the features are meant for; a server that knows the parameter refuses
                those of another bundle.

        Raises:
            RequestRefusedError: asking again would not help.
            ServerUnreachableError: asking again may help.
        """
        ...

    def close(self) -> None:
        """Give the connection back."""
        ...


def open_transport(url: str, *, token: str | None = None, authority: Path | None = None) -> Transport:
    """A transport for ``grpc://``, ``grpcs://``, ``http://`` or ``https://``; a bare ``host:port`` means gRPC.

    Args:
        url: address of the server. Beyond loopback only the encrypted schemes are accepted.
        token: bearer token.
        authority: PEM file with the certificates to trust instead of the system's.

    >>> open_transport("http://example.org:8080")
    Traceback (most recent call last):
    ValueError: http://example.org:8080 is not encrypted; beyond loopback use grpcs:// or https://
    """
    parts = urlsplit(url if "://" in url else f"grpc://{url}")
    if parts.scheme not in _SCHEMES or not parts.hostname or parts.path.strip("/") or parts.query or parts.username:
        raise ValueError(f"expected grpc://HOST:PORT, grpcs://, http:// or https://, received {url!r}")
    host, port = parts.hostname, parts.port or _SCHEMES[parts.scheme]
    encrypted = parts.scheme in ("grpcs", "https")
    if not encrypted and not is_loopback(host):
        raise ValueError(f"{url} is not encrypted; beyond loopback use grpcs:// or https://")
    if token is not None and (not token.isascii() or not token.isprintable()):
        raise ValueError("the token must be printable ASCII")
    if authority is not None and not authority.is_file():
        raise ValueError(f"{authority} is no file; it should hold the certificates to trust")
    if parts.scheme.startswith("grpc"):
        return GrpcTransport(host, port, encrypted=encrypted, token=token, authority=authority)
    return HttpTransport(host, port, encrypted=encrypted, token=token, authority=authority)


class GrpcTransport:
    """Raw tensors over gRPC; safe to share between threads."""

    def __init__(self, host: str, port: int, *, encrypted: bool, token: str | None, authority: Path | None) -> None:
        if "mlserver.grpc.dataplane_pb2" in sys.modules:
            raise ImportError("MLServer and the gRPC client exclude each other in one process; use another, or http://")
        try:
            from tritonclient import grpc as triton
            from tritonclient.utils import InferenceServerException
        except ImportError as error:
            raise ImportError(
                "the gRPC client is missing; pip install 'attention-cem[serve]', or use http://"
            ) from error
        self._triton = triton
        self._error = InferenceServerException
        self._headers = {} if token is None else {"authorization": f"Bearer {token}"}
        self._address = network_address(host, port)
        self._http_scheme = "https" if encrypted else "http"
        self._client = triton.InferenceServerClient(
            self._address,
            ssl=encrypted,
            root_certificates=None if authority is None else str(authority),
            channel_args=[
                ("grpc.max_receive_message_length", _LARGEST_ANSWER),
                # The default waits up to two minutes before it notices that a server has come back.
                ("grpc.initial_reconnect_backoff_ms", 100),
                ("grpc.max_reconnect_backoff_ms", 2000),
            ],
        )

    def infer(
        self, model: str, z: NDArray[np.float32], request_id: str, timeout: float, server_sha256: str | None = None
    ) -> NDArray[np.float32]:
        """One attempt."""
        tensor = self._triton.InferInput(FEATURE, list(z.shape), "FP32")
        tensor.set_data_from_numpy(z)
        try:
            answer = self._client.infer(
                model,
                [tensor],
                request_id=request_id,
                headers=self._headers,
                client_timeout=timeout,
                parameters=_parameters(server_sha256),
            )
        except self._error as error:
            status, text = str(error.status()), _printable(error.message())
            if "CERTIFICATE_VERIFY_FAILED" in text:
                raise RequestRefusedError(f"the server's certificate is not trusted: {_reason(text)}") from None
            if any(sign in text for sign in _NO_GRPC_SERVER):
                raise RequestRefusedError(
                    f"{self._address} does not answer in gRPC; is this the gRPC port? "
                    f"The HTTP port needs {self._http_scheme}://{self._address}"
                ) from None
            if _NO_TLS_SERVER in text:
                raise RequestRefusedError(_no_tls(self._address, "grpc")) from None
            if status in ("StatusCode.UNAVAILABLE", "StatusCode.DEADLINE_EXCEEDED", "StatusCode.CANCELLED"):
                raise ServerUnreachableError(f"{status.removeprefix('StatusCode.')}: {text}") from None
            hint = _FEWER if status == "StatusCode.RESOURCE_EXHAUSTED" else ""
            raise RequestRefusedError(f"the server refused: {text}{hint}") from None
        output = answer.get_output(LOGITS)
        try:
            if output is None or output.datatype != "FP32":
                raise TypeError
            return np.asarray(answer.as_numpy(LOGITS))
        except (ValueError, TypeError):
            raise RequestRefusedError(f"the server's answer has no output '{LOGITS}' of float32") from None

    def close(self) -> None:
        """Close the channel."""
        self._client.close()


class HttpTransport:
    """JSON tensors over HTTP, without further packages; one connection per thread."""

    def __init__(self, host: str, port: int, *, encrypted: bool, token: str | None, authority: Path | None) -> None:
        self._address = (host, port)
        self._tls = ssl.create_default_context(cafile=None if authority is None else str(authority))
        self._encrypted = encrypted
        self._headers = {"content-type": "application/json"}
        if token is not None:
            self._headers["authorization"] = f"Bearer {token}"
        self._local = threading.local()

    def infer(
        self, model: str, z: NDArray[np.float32], request_id: str, timeout: float, server_sha256: str | None = None
    ) -> NDArray[np.float32]:
        """One attempt."""
        tensor = {"name": FEATURE, "datatype": "FP32", "shape": list(z.shape), "data": z.ravel().tolist()}
        body = json.dumps({"id": request_id, "inputs": [tensor], "parameters": _parameters(server_sha256)})
        try:
            status, content = self._post(f"/v2/models/{model}/infer", body, timeout)
        except ssl.SSLCertVerificationError as error:
            self.close()
            raise RequestRefusedError(f"the server's certificate is not trusted: {error.verify_message}") from None
        except (OSError, http.client.HTTPException) as error:
            self.close()
            if isinstance(error, ssl.SSLError) and error.reason == _NO_TLS_SERVER:
                raise RequestRefusedError(_no_tls(network_address(*self._address), "http")) from None
            # A server that hangs up is a bad status line too, and may come back.
            if isinstance(error, http.client.BadStatusLine) and not isinstance(error, OSError):
                raise RequestRefusedError(
                    f"{':'.join(map(str, self._address))} does not answer in HTTP ({_printable(str(error)[:60])}); "
                    "is this the HTTP port? The gRPC port needs grpc://"
                ) from None
            raise ServerUnreachableError(f"{type(error).__name__}: {_printable(str(error))}") from None
        if status in (429, 502, 503, 504):
            raise ServerUnreachableError(f"HTTP {status}")
        if status != 200:
            said = _printable(content[:500].decode(errors="replace"))
            raise RequestRefusedError(f"the server refused with HTTP {status}: {said}{_FEWER * (status == 413)}")
        return _logits_of(content)

    def close(self) -> None:
        """Close this thread's connection."""
        connection = getattr(self._local, "connection", None)
        if connection is not None:
            connection.close()
            self._local.connection = None

    def _post(self, path: str, body: str, timeout: float) -> tuple[int, bytes]:
        connection = getattr(self._local, "connection", None)
        if connection is None:
            host, port = self._address
            connection = (
                http.client.HTTPSConnection(host, port, timeout=timeout, context=self._tls)
                if self._encrypted
                else http.client.HTTPConnection(host, port, timeout=timeout)
            )
            self._local.connection = connection
        connection.request("POST", path, body, self._headers)
        answer = connection.getresponse()
        content = answer.read(_LARGEST_ANSWER + 1)
        if len(content) > _LARGEST_ANSWER:
            raise http.client.HTTPException(f"the answer has more than {_LARGEST_ANSWER} bytes")
        return answer.status, content


def _parameters(server_sha256: str | None) -> dict[str, str]:
    return {} if server_sha256 is None else {SERVER_HALF: server_sha256}


def _logits_of(content: bytes) -> NDArray[np.float32]:
    try:
        answer: Any = json.loads(content)
        (output,) = (each for each in answer["outputs"] if each["name"] == LOGITS)
        values = np.asarray(output["data"])
        if output["datatype"] != "FP32" or values.dtype.kind not in "fiu":
            raise TypeError
        with np.errstate(over="ignore"):  # what does not fit becomes infinite, and is refused as such
            return values.astype(np.float32).reshape(output["shape"])
    except (ValueError, KeyError, TypeError, OverflowError, RecursionError):
        raise RequestRefusedError("the server's answer is not one of the Open Inference Protocol") from None


def _no_tls(address: str, scheme: str) -> str:
    return f"{address} does not answer encrypted; a server without a certificate is reached at {scheme}://{address}"


def _reason(text: str) -> str:
    return text.rsplit("CERTIFICATE_VERIFY_FAILED", 1)[-1].strip(": ") or "verification failed"


def _printable(text: str) -> str:
    """Text from outside in one line, with what a terminal would obey shown as an escape.

    >>> _printable("no\\nsuch \\x1b[2J model")
    'no such \\\\x1b[2J model'
    """
    return "".join(each if each.isprintable() else ascii(each)[1:-1] for each in " ".join(text.split()))
