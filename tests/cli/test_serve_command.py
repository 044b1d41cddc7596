"""``attention-cem serve``; that it answers is tested in tests/shipping."""

from __future__ import annotations

import pytest

from attention_cem.cli.main import main
from tests.shipping.serving import free_ports


@pytest.mark.parametrize(
    ("options", "message"),
    [
        (["--host", "0.0.0.0"], "needs a bearer token (--token-file) and TLS (--certificate and --key)"),
        (["--max-batch", "0"], "max_batch must be 1 to 1000000, received 0"),
        (["--max-samples", "100000000000"], "max_samples must be 1 to 1000000, received 100000000000"),
        (["--http-port", "9000", "--grpc-port", "9000"], "must differ, received 9000, 9000 and"),
        ([], "manifest.json is missing"),
    ],
)
def test_serve__refuses_in_one_line(tmp_path, capsys, options, message):
    named = zip(("--http-port", "--grpc-port", "--metrics-port"), map(str, free_ports(3)), strict=True)
    assert main(["serve", str(tmp_path), *(word for pair in named for word in pair), *options]) == 2
    errors = capsys.readouterr().err
    assert message in errors and errors.count("\n") == 1


def test_serve__a_bundle_that_cannot_be_read_is_told_in_one_line(capsys):
    named = zip(("--http-port", "--grpc-port", "--metrics-port"), map(str, free_ports(3)), strict=True)
    assert main(["serve", "x" * 5000, *(word for pair in named for word in pair)]) == 2
    errors = capsys.readouterr().err
    assert "File name too long; check the permissions and the disk" in errors and errors.count("\n") == 1
