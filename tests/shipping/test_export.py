"""The exported halves compute what was trained, and the client cannot be run without its noise."""

from __future__ import annotations

import copy
import inspect
import json
import shutil

import numpy as np
import onnxruntime
import pytest
import torch
from torch import nn

from attention_cem.data import synthetic_images
from attention_cem.defences import DefenceStack, FeatureDropout, GaussianNoise, LaplaceNoise
from attention_cem.shipping import BundleError, DefendedClient, ExportMismatchError, Halves, export_bundle, open_bundle
from attention_cem.shipping.numerical_check import check_server
from attention_cem.splitting import SplitModel
from tests.shipping.conftest import SIGMA


@pytest.fixture(scope="module")
def images(run):
    data = synthetic_images(num_classes=4, num_train=16, num_test=1000, size=16)
    return data.test.images


def logits_of(bundle, z):
    return onnxruntime.InferenceSession(bundle.server_path).run(None, {"z": z})[0]


def test_export__noise_off_gives_the_trained_predictions_exactly(run, bundle, images):
    session = onnxruntime.InferenceSession(bundle.client_path)
    zero = np.zeros((len(images), *bundle.z_shape), np.float32)
    exported = logits_of(bundle, session.run(None, {"images": images.numpy(), "noise_0": zero})[0])
    with torch.no_grad():
        trained = run.model(images.float() / 255)
    assert np.array_equal(exported.argmax(1), trained.argmax(1).numpy())
    torch.testing.assert_close(torch.from_numpy(exported), trained, rtol=1e-4, atol=1e-4)


def test_export__same_noise_gives_the_same_predictions(run, bundle, images):
    noise = np.random.default_rng(1).normal(size=(len(images), *bundle.z_shape)).astype(np.float32)
    session = onnxruntime.InferenceSession(bundle.client_path)
    exported = logits_of(bundle, session.run(None, {"images": images.numpy(), "noise_0": noise})[0])
    with torch.no_grad():
        z = run.stack.release(run.model.client(images.float() / 255), [torch.from_numpy(noise)])
        trained = run.model.server(z)
    assert np.array_equal(exported.argmax(1), trained.argmax(1).numpy())


def test_export__what_the_device_really_releases_is_classified_as_in_training(run, bundle, images):
    # Noise comes from the operating system: both server halves are asked about the same release.
    released = DefendedClient(bundle).release(images.numpy())
    with torch.no_grad():
        trained = run.model.server(torch.from_numpy(released))
    torch.testing.assert_close(torch.from_numpy(logits_of(bundle, released)), trained, rtol=1e-4, atol=1e-4)


def test_export__noise_has_the_configured_deviation_and_differs_between_calls(run, bundle, images):
    client = DefendedClient(bundle)
    with torch.no_grad():
        clean = run.model.client(images.float() / 255).numpy()
    first, second = (client.release(images.numpy()) for _ in range(2))
    assert (first - clean).std() == pytest.approx(SIGMA, rel=0.02)
    assert abs((first - clean).mean()) < 0.03 * SIGMA  # five standard errors
    assert not np.array_equal(first, second)
    correlation = np.corrcoef((first - clean).ravel(), (second - clean).ravel())[0, 1]
    assert abs(correlation) < 0.03


def test_export__client_graph_cannot_run_without_noise(bundle, images):
    session = onnxruntime.InferenceSession(bundle.client_path)
    with pytest.raises(ValueError, match="noise_0"):
        session.run(None, {"images": images[:1].numpy()})


def test_export__client_graph_holds_no_random_node_and_no_default_noise(bundle):
    import onnx

    graph = onnx.load(bundle.client_path).graph
    assert not [node.op_type for node in graph.node if node.op_type.startswith(("Random", "Bernoulli", "Multinomial"))]
    assert "noise_0" not in {each.name for each in graph.initializer}


def test_device__offers_no_way_to_switch_the_noise_off(bundle):
    assert list(inspect.signature(DefendedClient.release).parameters) == ["self", "images"]
    assert list(inspect.signature(DefendedClient.__init__).parameters) == ["self", "bundle", "threads"]
    assert {name for name in vars(DefendedClient(bundle)) if not name.startswith("_")} == {"image_shape", "z_shape"}


def test_export__several_draws_become_several_required_inputs(tmp_path):
    torch.manual_seed(0)
    model = SplitModel(nn.Sequential(nn.Flatten(), nn.Linear(48, 6)), nn.Linear(6, 3))
    stack = DefenceStack([GaussianNoise(0.1), LaplaceNoise(0.1), FeatureDropout(0.5)])
    bundle = export_bundle(Halves(model, stack, (3, 4, 4), ("a", "b", "c"), {}), tmp_path / "bundle")
    assert bundle.draws == ("normal", "uniform", "uniform", "uniform")
    released = DefendedClient(bundle).release(np.zeros((400, 3, 4, 4), np.uint8))
    assert (released == 0).mean() == pytest.approx(0.5, abs=0.05)


def test_export__manifest_says_what_the_halves_need(bundle):
    manifest = bundle.manifest
    assert manifest["noise"]["may_be_omitted"] is False
    assert manifest["defence"]["defences"][0]["sigma"] == SIGMA
    assert [each["name"] for each in manifest["client"]["inputs"]] == ["images", "noise_0"]
    assert set(manifest["files"]) == {
        "client.onnx",
        "server.onnx",
        "server.safetensors",
        "triton/shapes/config.pbtxt",
        "triton/shapes/1/model.onnx",
        "mlserver/settings.json",
        "mlserver/model-settings.json",
    }


def test_export__a_graph_that_deviates_is_refused(run, bundle):
    changed = torch.nn.Sequential(run.model.server, nn.Linear(4, 4)).eval()
    with pytest.raises(ExportMismatchError, match="server.onnx deviates from torch"):
        check_server(bundle.server_path, changed, bundle.z_shape, 4)


def test_export__mismatch_leaves_nothing_behind(run, bundle, tmp_path, monkeypatch):
    # The exporter "writes" the graphs of the trained client while the client handed in has other weights.
    other = copy.deepcopy(run.model)
    with torch.no_grad():
        next(other.client.parameters()).add_(0.1)
    monkeypatch.setattr("attention_cem.shipping.export.write_client_graph", lambda path, *rest: _copied(bundle, path))
    monkeypatch.setattr("attention_cem.shipping.export.write_server_graph", lambda path, *rest: _copied(bundle, path))
    halves = Halves(other, run.stack, run.image_shape, run.class_names, {})
    with pytest.raises(ExportMismatchError, match="client.onnx deviates from torch"):
        export_bundle(halves, tmp_path / "bundle")
    assert list(tmp_path.iterdir()) == []


def _copied(bundle, path):
    shutil.copyfile(bundle.folder / path.name, path)
    return 20


def test_export__refuses_an_existing_folder_and_a_strange_name(run, tmp_path):
    with pytest.raises(ValueError, match="exists already"):
        export_bundle(Halves.of(run), tmp_path)
    with pytest.raises(ValueError, match=r"received '\.\./x'"):
        export_bundle(Halves.of(run), tmp_path / "b", name="../x")


@pytest.mark.parametrize(
    "name",
    ["client.onnx", "server.onnx", "server.safetensors", "triton/shapes/config.pbtxt", "mlserver/settings.json"],
)
def test_bundle__altered_by_one_byte_is_refused_by_name(bundle_folder, tmp_path, name):
    twin = shutil.copytree(bundle_folder, tmp_path / "twin")
    content = bytearray((twin / name).read_bytes())
    content[len(content) // 2] ^= 1
    (twin / name).write_bytes(content)
    with pytest.raises(BundleError, match=f"{name} was altered"):
        open_bundle(twin)


def test_bundle__missing_extra_and_linked_files_are_refused_by_name(bundle_folder, tmp_path):
    twin = shutil.copytree(bundle_folder, tmp_path / "twin")
    (twin / "extra.py").write_text("")
    with pytest.raises(BundleError, match="extra.py is not listed"):
        open_bundle(twin)
    (twin / "extra.py").unlink()
    (twin / "server.onnx").unlink()
    with pytest.raises(BundleError, match="server.onnx is missing"):
        open_bundle(twin)
    (twin / "server.onnx").symlink_to(bundle_folder / "server.onnx")
    with pytest.raises(BundleError, match="server.onnx is missing or not a plain file"):
        open_bundle(twin)


@pytest.mark.parametrize(
    ("field", "value", "message"),
    [
        ("z_shape", [8, -1], "'z_shape' must be a list of positive"),
        ("z_shape", [2**20, 2**20], "more than"),
        ("image_shape", [7, 4, 4], "'image_shape' must be"),
        ("class_names", [1], "'class_names'"),
        ("noise", {"draws": ["none"]}, "'noise.draws'"),
        ("noise", {}, "'noise.draws'"),
        ("name", "../etc", "'name' must be a plain name"),
        ("version", 99, "has version 99"),
        ("format", "zip", "not the manifest of a bundle"),
        ("files", {"../x": {"bytes": 1, "sha256": "0"}}, "'files' must map plain relative paths"),
    ],
)
def test_bundle__hostile_manifest_is_refused(bundle_folder, tmp_path, field, value, message):
    twin = shutil.copytree(bundle_folder, tmp_path / "twin")
    manifest = json.loads((twin / "manifest.json").read_text())
    (twin / "manifest.json").write_text(json.dumps({**manifest, field: value}))
    with pytest.raises(BundleError, match=message):
        open_bundle(twin)


def test_device__refuses_what_is_no_batch_of_pixels(bundle):
    client = DefendedClient(bundle)
    with pytest.raises(ValueError, match="expected uint8 images"):
        client.release(np.zeros((1, 3, 16, 16), np.float32))
    with pytest.raises(ValueError, match=r"received uint8 \(1, 3, 8, 8\)"):
        client.release(np.zeros((1, 3, 8, 8), np.uint8))
    assert client.release(np.zeros((0, 3, 16, 16), np.uint8)).shape == (0, *bundle.z_shape)
