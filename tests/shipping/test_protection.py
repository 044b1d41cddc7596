"""Tokens and TLS: needed beyond loopback, checked in constant time, refused when wrong, missing or expired."""

from __future__ import annotations

import dataclasses
import hmac
import shutil
import socket
import ssl
import subprocess
import urllib.error
import urllib.request

import numpy as np
import pytest

from attention_cem.shipping.request_checks import RequestRules
from attention_cem.shipping.serve_settings import (
    ServeSettings,
    Token,
    UnsafeServerError,
    check_settings,
    is_loopback,
)
from attention_cem.shipping.transports import RequestRefusedError, open_transport
from tests.shipping.conftest import needs_mlserver
from tests.shipping.serving import free_ports, serving

SECRET = "correct-horse-battery-staple"


EXTENSIONS = "subjectAltName=IP:127.0.0.1\nbasicConstraints=critical,CA:TRUE\n"
AUTHORITY = """[ca]
default_ca = own
[own]
database = {folder}/index
serial = {folder}/serial
new_certs_dir = {folder}
default_md = sha256
policy = any
[any]
commonName = supplied
"""


def openssl(*arguments):
    if shutil.which("openssl") is None:
        pytest.skip("needs the openssl command")
    done = subprocess.run(["openssl", *map(str, arguments)], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr


def certificate(folder, name, start="20200101000000Z", end="20991231000000Z"):
    """A self-signed certificate for 127.0.0.1; `openssl ca` alone can date one in the past."""
    key, request, cert = (folder / f"{name}.{kind}" for kind in ("key", "csr", "pem"))
    if cert.is_file():
        return cert, key
    (folder / f"{name}.cnf").write_text(AUTHORITY.format(folder=folder))
    (folder / f"{name}.ext").write_text(EXTENSIONS)
    (folder / "index").write_text("")
    (folder / "serial").write_text(f"{len(list(folder.iterdir())):04d}\n")
    curve = ("-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:prime256v1", "-nodes")
    openssl("req", "-new", *curve, "-keyout", key, "-out", request, "-subj", "/CN=127.0.0.1")
    signed = ("-batch", "-selfsign", "-notext", "-config", folder / f"{name}.cnf", "-extfile", folder / f"{name}.ext")
    dated = ("-startdate", start, "-enddate", end)
    openssl("ca", *signed, *dated, "-keyfile", key, "-in", request, "-out", cert)
    return cert, key


def settings(**changes):
    http_port, grpc_port, metrics_port = free_ports(3)
    return ServeSettings(http_port=http_port, grpc_port=grpc_port, metrics_port=metrics_port, **changes)


@pytest.fixture(scope="module")
def secrets(tmp_path_factory):
    folder = tmp_path_factory.mktemp("secrets")
    (folder / "token").write_text(SECRET + "\n")
    return folder


@pytest.fixture(scope="module")
def guarded(bundle, secrets):
    needs_mlserver()
    cert, key = certificate(secrets, "good")
    options = ["--token-file", str(secrets / "token"), "--certificate", str(cert), "--key", str(key)]
    with serving(bundle.folder, *options) as running:
        yield running


@pytest.mark.parametrize("scheme", ["grpcs", "https"])
def test_guarded__right_token_is_answered_over_tls(guarded, secrets, bundle, scheme):
    answer = ask(guarded, scheme, secrets / "good.pem", SECRET, bundle)
    assert answer.shape == (1, 4)


@pytest.mark.parametrize("scheme", ["grpcs", "https"])
@pytest.mark.parametrize("token", [None, "wrong-horse-battery-staple", SECRET[:-1], SECRET + "x", ""])
def test_guarded__wrong_or_no_token_is_refused(guarded, secrets, bundle, scheme, token):
    with pytest.raises(RequestRefusedError, match="a valid bearer token is needed"):
        ask(guarded, scheme, secrets / "good.pem", token, bundle)


@pytest.mark.parametrize("scheme", ["grpcs", "https"])
def test_guarded__client_refuses_a_certificate_it_does_not_know(guarded, secrets, bundle, scheme):
    other, _ = certificate(secrets, "other")
    with pytest.raises(RequestRefusedError, match="certificate is not trusted"):
        ask(guarded, scheme, other, SECRET, bundle)


def test_guarded__grpc_to_the_https_port_is_refused_at_once(guarded, secrets, bundle):
    transport = open_transport(f"grpcs://{guarded.http}", token=SECRET, authority=secrets / "good.pem")
    with pytest.raises(
        RequestRefusedError, match=f"does not answer in gRPC.* The HTTP port needs https://{guarded.http}"
    ):
        transport.infer("shapes", np.zeros((1, *bundle.z_shape), np.float32), "id", 10.0)
    transport.close()


def test_guarded__health_is_open_and_metadata_is_not(guarded, secrets):
    context = ssl.create_default_context(cafile=secrets / "good.pem")
    base = f"https://127.0.0.1:{guarded.http_port}/v2"
    with urllib.request.urlopen(f"{base}/health/ready", context=context, timeout=10) as answer:
        assert answer.status == 200
    with pytest.raises(urllib.error.HTTPError) as refused:
        urllib.request.urlopen(f"{base}/models/shapes", context=context, timeout=10)
    assert refused.value.code == 401 and refused.value.headers["www-authenticate"] == "Bearer"


@pytest.mark.parametrize("scheme", ["grpcs", "https"])
def test_guarded__expired_certificate_is_refused_by_the_client(bundle, secrets, scheme):
    cert, key = certificate(secrets, "expired", end="20210101000000Z")
    with (
        serving(bundle.folder, "--certificate", str(cert), "--key", str(key)) as running,
        pytest.raises(RequestRefusedError, match="certificate is not trusted: certificate has expired"),
    ):
        ask(running, scheme, cert, None, bundle)


def ask(server, scheme, authority, token, bundle):
    port = server.grpc_port if scheme == "grpcs" else server.http_port
    transport = open_transport(f"{scheme}://127.0.0.1:{port}", token=token, authority=authority)
    try:
        return transport.infer("shapes", np.zeros((1, *bundle.z_shape), np.float32), "id", 10.0)
    finally:
        transport.close()


@pytest.mark.parametrize("host", ["0.0.0.0", "::", "192.168.1.7", "example.org"])
def test_settings__beyond_loopback_token_and_tls_are_needed(host, secrets):
    with pytest.raises(UnsafeServerError, match=r"needs a bearer token .* and TLS"):
        check_settings(settings(host=host))
    with pytest.raises(UnsafeServerError, match=r"needs TLS"):
        check_settings(settings(host=host, token_file=secrets / "token"))


def test_settings__loopback_is_recognised():
    assert is_loopback("127.0.0.2") and is_loopback("localhost") and is_loopback("::1")
    assert not is_loopback("localhost.example.org") and not is_loopback("")


def test_settings__weak_or_unreadable_tokens_are_refused(tmp_path):
    (tmp_path / "short").write_text("abc")
    with pytest.raises(UnsafeServerError, match="3 characters, at least 16"):
        check_settings(settings(token_file=tmp_path / "short"))
    with pytest.raises(UnsafeServerError, match="cannot be read"):
        check_settings(settings(token_file=tmp_path / "absent"))


def test_settings__key_of_another_certificate_is_refused(tmp_path):
    cert, _ = certificate(tmp_path, "one")
    _, key = certificate(tmp_path, "two")
    with pytest.raises(UnsafeServerError, match="cannot be used"):
        check_settings(settings(certificate=cert, key=key))
    with pytest.raises(UnsafeServerError, match="one of them is missing"):
        check_settings(settings(certificate=cert))


def test_settings__taken_port_is_refused(server):
    with pytest.raises(UnsafeServerError, match=f"grpc_port {server.grpc_port} on 127.0.0.1 cannot be used"):
        check_settings(ServeSettings(http_port=free_ports(1)[0], grpc_port=server.grpc_port))


def test_settings__one_port_for_two_servers_is_refused():
    one, two = free_ports(2)
    with pytest.raises(UnsafeServerError, match=f"must differ, received {one}, {two} and {one}"):
        check_settings(ServeSettings(http_port=one, grpc_port=two, metrics_port=one))


def test_settings__the_metrics_port_is_looked_for_where_it_is_used():
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = taken.getsockname()[1]
        with pytest.raises(UnsafeServerError, match=f"metrics_port {port} on 127.0.0.1 cannot be used"):
            check_settings(dataclasses.replace(settings(host="::1"), metrics_port=port))


@pytest.mark.parametrize("name", ["max_samples", "max_batch", "max_waiting", "threads"])
@pytest.mark.parametrize("value", [-1, 10**11])
def test_settings__limits_that_cannot_work_are_refused(name, value):
    with pytest.raises(UnsafeServerError, match=rf"{name} must be [01] to \d+, received {value}"):
        check_settings(settings(**{name: value}))


def test_rules__the_largest_message_fits_what_grpc_can_count():
    assert RequestRules("shapes", (2**26,), 4, 10**6).largest_message == 2**31 - 1


@pytest.mark.parametrize("scheme", ["grpc", "http"])
def test_server__answers_on_the_ipv6_loopback(bundle, scheme):
    needs_mlserver()
    if not socket.has_ipv6:
        pytest.skip("needs IPv6")
    with serving(bundle.folder, host="::1") as running:
        port = running.grpc_port if scheme == "grpc" else running.http_port
        transport = open_transport(f"{scheme}://[::1]:{port}")
        assert transport.infer("shapes", np.zeros((1, *bundle.z_shape), np.float32), "id", 10.0).shape == (1, 4)
        transport.close()


def test_token__is_compared_in_constant_time(monkeypatch):
    compared = []

    original = hmac.compare_digest

    def watched(one, other):
        compared.append((len(one), len(other)))
        return original(one, other)

    monkeypatch.setattr("attention_cem.shipping.serve_settings.hmac.compare_digest", watched)
    token = Token(SECRET)
    for given in (None, "", "Bearer", "Basic " + SECRET, "Bearer x", "Bearer " + "x" * 9999):
        assert not token.admits(given)
    assert token.admits("bearer " + SECRET) and token.admits(b"Bearer " + SECRET.encode())
    # Every comparison is one of two hashes, whatever was given.
    assert compared == [(32, 32)] * 8


@pytest.mark.parametrize("url", ["http://10.0.0.1:80", "grpc://example.org", "example.org:8081"])
def test_transport__never_sends_features_unencrypted_beyond_loopback(url):
    with pytest.raises(ValueError, match="is not encrypted"):
        open_transport(url)


@pytest.mark.parametrize("url", ["ftp://127.0.0.1", "http://", "http://u:p@127.0.0.1", "http://127.0.0.1/path"])
def test_transport__strange_addresses_are_refused(url):
    with pytest.raises(ValueError, match="expected grpc://HOST:PORT"):
        open_transport(url)
