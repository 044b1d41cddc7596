"""How a bundle is served, and the refusal to serve it unprotected."""

from __future__ import annotations

import hashlib
import hmac
import ipaddress
import socket
import ssl
from dataclasses import dataclass
from pathlib import Path

SHORTEST_TOKEN = 16
METRICS_HOST = "127.0.0.1"
"""Metrics carry no token, so only this machine can read them."""

_LARGEST_TOKEN_FILE = 4096
_LIMITS = {"max_samples": (1, 10**6), "max_batch": (1, 10**6), "max_waiting": (1, 10**6), "threads": (0, 1024)}


class UnsafeServerError(ValueError):
    """The settings would put the server on a network without a token or without TLS, or cannot work."""


@dataclass(frozen=True)
class ServeSettings:
    """Where to listen, and the limits.

    Args:
        host: address to listen on; anything but loopback needs a token and a certificate.
        http_port: of HTTP.
        grpc_port: of gRPC.
        metrics_port: of the Prometheus metrics, which are served on loopback only, whatever the host.
        token_file: file whose content, stripped, every request must bring as its bearer token.
        certificate: PEM file with the certificate chain.
        key: PEM file with its private key.
        max_samples: most samples in one request.
        max_batch: most samples in one call of the runtime; requests that wait together are answered together.
        max_waiting: requests that may wait; further ones are told to come back (HTTP 429, gRPC UNAVAILABLE).
        threads: threads of ONNX Runtime; 0 takes every core.
    """

    host: str = "127.0.0.1"
    http_port: int = 8080
    grpc_port: int = 8081
    metrics_port: int = 8082
    token_file: Path | None = None
    certificate: Path | None = None
    key: Path | None = None
    max_samples: int = 256
    max_batch: int = 64
    max_waiting: int = 1024
    threads: int = 0

    @property
    def uses_tls(self) -> bool:
        """Whether connections are encrypted."""
        return self.certificate is not None


class Token:
    """A bearer token of which only the hash is kept; the comparison takes the same time wherever they differ.

    >>> token = Token("correct horse battery")
    >>> token.admits("Bearer correct horse battery"), token.admits("Bearer wrong"), token.admits(None)
    (True, False, False)
    """

    def __init__(self, secret: str) -> None:
        if len(secret) < SHORTEST_TOKEN:
            raise UnsafeServerError(f"the token has {len(secret)} characters, at least {SHORTEST_TOKEN} are needed")
        self._digest = hashlib.sha256(secret.encode()).digest()

    def admits(self, authorization: str | bytes | None) -> bool:
        """Whether the value of an ``Authorization`` header carries this token."""
        given = authorization.encode() if isinstance(authorization, str) else authorization or b""
        scheme, _, secret = given.partition(b" ")
        # Hashes of one length are compared, so that not even the token's length shows.
        same = hmac.compare_digest(hashlib.sha256(secret).digest(), self._digest)
        return same and scheme.lower() == b"bearer"


def check_settings(settings: ServeSettings) -> Token | None:
    """Refuse settings that expose the server, and return the token if there is one.

    Raises:
        UnsafeServerError: says what is missing; nothing was started.
    """
    for name, (least, most) in _LIMITS.items():
        if not least <= getattr(settings, name) <= most:
            raise UnsafeServerError(f"{name} must be {least} to {most}, received {getattr(settings, name)}")
    if (settings.certificate is None) != (settings.key is None):
        raise UnsafeServerError("a certificate needs its key and a key its certificate; one of them is missing")
    if not is_loopback(settings.host):
        lacking = []
        if settings.token_file is None:
            lacking.append("a bearer token (--token-file)")
        if not settings.uses_tls:
            lacking.append("TLS (--certificate and --key)")
        if lacking:
            raise UnsafeServerError(
                f"{settings.host} is not a loopback address: serving there needs {' and '.join(lacking)}"
            )
    if settings.certificate is not None and settings.key is not None:
        try:
            ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER).load_cert_chain(settings.certificate, settings.key)
        except (OSError, ssl.SSLError) as error:
            raise UnsafeServerError(f"{settings.certificate} and {settings.key} cannot be used: {error}") from error
    token = None if settings.token_file is None else Token(read_token(settings.token_file))
    _check_ports(settings)
    return token


def read_token(path: Path) -> str:
    """The token a file holds, without the white space around it."""
    try:
        with path.open("rb") as stream:
            content = stream.read(_LARGEST_TOKEN_FILE + 1)
        text = content.decode("ascii").strip()
    except (OSError, UnicodeDecodeError) as error:
        raise UnsafeServerError(f"the token file {path} cannot be read as ASCII text: {error}") from error
    if len(content) > _LARGEST_TOKEN_FILE or not text.isprintable():
        raise UnsafeServerError(f"the token file {path} must hold one line of at most {_LARGEST_TOKEN_FILE} bytes")
    return text


def is_loopback(host: str) -> bool:
    """Whether only this machine can reach the address; names other than localhost count as reachable by all.

    >>> is_loopback("127.0.0.1"), is_loopback("::1"), is_loopback("0.0.0.0"), is_loopback("example.org")
    (True, True, False, False)
    """
    if host == "localhost":
        return True
    try:
        return ipaddress.ip_address(host).is_loopback
    except ValueError:
        return False


def network_address(host: str, port: int) -> str:
    """Host and port in one word.

    >>> network_address("127.0.0.1", 8081), network_address("::1", 8081)
    ('127.0.0.1:8081', '[::1]:8081')
    """
    return f"[{host}]:{port}" if ":" in host else f"{host}:{port}"


def _check_ports(settings: ServeSettings) -> None:
    ports = {"http_port": settings.http_port, "grpc_port": settings.grpc_port, "metrics_port": settings.metrics_port}
    if len(set(ports.values())) < len(ports):
        one, two, three = ports.values()
        raise UnsafeServerError(f"{', '.join(ports)} must differ, received {one}, {two} and {three}")
    # gRPC would share a taken port silently, and half of the requests would reach somebody else.
    for name, port in ports.items():
        if not 1 <= port <= 65535:
            raise UnsafeServerError(f"{name} must be 1 to 65535, received {port}")
        host = METRICS_HOST if name == "metrics_port" else settings.host
        family = socket.AF_INET6 if ":" in host else socket.AF_INET
        with socket.socket(family, socket.SOCK_STREAM) as probe:
            probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
            try:
                probe.bind((host, port))
            except OSError as error:
                raise UnsafeServerError(f"{name} {port} on {host} cannot be used: {error.strerror}") from error
