"""A client of one bundle and the server of another: alike in name and shapes, and wrong together."""

from __future__ import annotations

import json

import numpy as np
import pytest
import torch
from PIL import Image

from attention_cem.cli.main import main
from attention_cem.shipping import Halves, RemoteClassifier, RequestRefusedError, export_bundle, open_transport
from attention_cem.shipping.bundle import SERVER_HALF
from attention_cem.shipping.request_checks import RequestError, RequestRules
from attention_cem.training import load_run

REFUSAL = "exported with another server half than the one that is served here: export again and update both sides"
SCHEMES = pytest.mark.parametrize("scheme", ["http", "grpc"])
IMAGES = np.zeros((2, 3, 16, 16), np.uint8)


@pytest.fixture(scope="module")
def other_bundle(run, tmp_path_factory):
    """A bundle with the name and the shapes of the one that is served, and other weights."""
    halves = Halves.of(load_run(run.folder))
    with torch.no_grad():
        for weights in halves.model.server.parameters():
            weights.mul_(1.5)
    return export_bundle(halves, tmp_path_factory.mktemp("bundles") / "other", name="shapes")


def address(server, scheme):
    return f"{scheme}://{server.http if scheme == 'http' else server.grpc}"


@SCHEMES
def test_other_bundle__the_same_bundle_is_answered(server, bundle, scheme):
    assert RemoteClassifier(bundle, open_transport(address(server, scheme))).logits(IMAGES).shape == (2, 4)


@SCHEMES
def test_other_bundle__is_refused_at_once(server, bundle, other_bundle, scheme):
    assert other_bundle.z_shape == bundle.z_shape and other_bundle.name == bundle.name
    with pytest.raises(RequestRefusedError, match=REFUSAL):
        RemoteClassifier(other_bundle, open_transport(address(server, scheme))).logits(IMAGES)


@SCHEMES
def test_other_bundle__a_client_that_names_no_server_half_is_answered(server, bundle, scheme):
    z = np.zeros((1, *bundle.z_shape), np.float32)
    assert open_transport(address(server, scheme)).infer("shapes", z, "id", 10.0).shape == (1, 4)


@SCHEMES
def test_other_bundle__predict_says_so_in_one_line(server, other_bundle, scheme, tmp_path, capsys):
    Image.new("RGB", (16, 16)).save(tmp_path / "image.png")
    where = ["--server", address(server, scheme), "--bundle", str(other_bundle.folder)]
    out = tmp_path / "out.jsonl"
    assert main(["predict", str(tmp_path / "image.png"), *where, "-o", str(out)]) == 2
    errors = capsys.readouterr().err
    assert REFUSAL in errors and errors.count("\n") == 1
    lines = out.read_text().splitlines() if out.exists() else []
    assert not any("class_name" in json.loads(line) for line in lines)


@pytest.mark.parametrize("named", ["b" * 64, "", 1, True, {}, ["a" * 64]])
def test_rules__whatever_is_not_the_server_half_is_refused(named):
    rules = RequestRules("shapes", (2,), 3, 4, server_sha256="a" * 64)
    tensor = {"name": "z", "datatype": "FP32", "shape": [1, 2], "data": [0.5, 0.5]}
    rules.from_json({"inputs": [tensor], "parameters": {SERVER_HALF: "a" * 64, "other": 1}})
    rules.from_json({"inputs": [tensor], "parameters": {"other": 1}})
    with pytest.raises(RequestError, match=REFUSAL):
        rules.from_json({"inputs": [tensor], "parameters": {SERVER_HALF: named}})
