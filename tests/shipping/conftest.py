from __future__ import annotations

from collections.abc import Iterator
from importlib.util import find_spec
from pathlib import Path

import pytest

from attention_cem.shipping import Bundle, Halves, export_bundle
from attention_cem.training import TrainedRun, load_run, train
from tests.shipping.serving import RunningServer, serving
from tests.training.helpers import tiny_config

pytest.importorskip("onnxruntime")
pytest.importorskip("onnxscript")

SIGMA = 0.05


def needs_mlserver() -> None:
    # Found, not imported: MLServer and NVIDIA's client define the same messages and exclude each other in a process.
    if find_spec("mlserver") is None:
        pytest.skip("needs MLServer")


@pytest.fixture(scope="session")
def run(tmp_path_factory: pytest.TempPathFactory) -> TrainedRun:
    """A short run on synthetic images: 16 px, four classes, Gaussian noise."""
    folder = tmp_path_factory.mktemp("shipping") / "run"
    train(tiny_config(folder, train__epochs=8, defence__gaussian_noise__sigma=SIGMA, train__lr=0.05))
    return load_run(folder)


@pytest.fixture(scope="session")
def bundle(run: TrainedRun, tmp_path_factory: pytest.TempPathFactory) -> Bundle:
    return export_bundle(Halves.of(run), tmp_path_factory.mktemp("bundles") / "bundle", name="shapes")


@pytest.fixture
def bundle_folder(bundle: Bundle) -> Path:
    return bundle.folder


@pytest.fixture(scope="session")
def server(bundle: Bundle) -> Iterator[RunningServer]:
    """One server on loopback, without token, shared by all tests that leave it running."""
    needs_mlserver()
    with serving(bundle.folder, "--max-samples", "64") as running:
        yield running
