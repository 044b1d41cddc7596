"""``attention-cem serve``."""

from __future__ import annotations

import argparse
from collections.abc import Sequence
from pathlib import Path

from attention_cem.cli.remedies import os_words
from attention_cem.cli.requests import refuse
from attention_cem.shipping.bundle import open_bundle
from attention_cem.shipping.serve_settings import ServeSettings, check_settings

_EXAMPLES = """examples:
  attention-cem serve bundle/
  attention-cem serve bundle/ --host 0.0.0.0 --token-file token --certificate cert.pem --key key.pem
"""


def main(arguments: Sequence[str]) -> int:
    """Parse, serve until told to stop."""
    given = vars(_parser().parse_args(list(arguments)))
    folder = given.pop("bundle")
    settings = ServeSettings(**given)
    try:
        # Refused before MLServer is imported, which takes seconds.
        check_settings(settings)
        open_bundle(folder)
        from attention_cem.shipping.server import serve

        serve(folder, settings)
    except ImportError as error:
        return refuse("serve", ImportError(f"{error}; pip install 'attention-cem[serve]'"))
    except ValueError as error:
        return refuse("serve", error)
    except OSError as error:
        return refuse("serve", OSError(os_words(error)))
    return 0


def _parser() -> argparse.ArgumentParser:
    default = ServeSettings()
    parser = argparse.ArgumentParser(
        prog="attention-cem serve",
        description="Answer inference requests with a bundle's server half (Open Inference Protocol v2 over HTTP and "
        "gRPC). Beyond loopback a token and TLS are required. Metrics are served on loopback only.",
        epilog=_EXAMPLES,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument("bundle", metavar="BUNDLE", help="folder written by `attention-cem export`")
    parser.add_argument("--host", default=default.host, help="address to listen on [%(default)s]")
    parser.add_argument("--http-port", type=int, default=default.http_port, metavar="N", help="[%(default)s]")
    parser.add_argument("--grpc-port", type=int, default=default.grpc_port, metavar="N", help="[%(default)s]")
    parser.add_argument("--metrics-port", type=int, default=default.metrics_port, metavar="N", help="[%(default)s]")
    parser.add_argument("--token-file", type=Path, metavar="FILE", help="file with the bearer token")
    parser.add_argument("--certificate", type=Path, metavar="FILE", help="certificate chain (PEM)")
    parser.add_argument("--key", type=Path, metavar="FILE", help="private key (PEM)")
    for name, text in (
        ("max-samples", "most samples in one request"),
        ("max-batch", "most samples computed together"),
        ("max-waiting", "most requests that wait"),
        ("threads", "threads of ONNX Runtime; 0 takes every core"),
    ):
        standard = getattr(default, name.replace("-", "_"))
        parser.add_argument(f"--{name}", type=int, default=standard, metavar="N", help=f"{text} [%(default)s]")
    return parser
