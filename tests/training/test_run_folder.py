from pathlib import Path

import pytest

from attention_cem.training import ConfigError
from attention_cem.training.config_reading import config_hash
from attention_cem.training.files import write_atomically
from attention_cem.training.run_folder import RunFolder, folder_for

from .helpers import tiny_config


def test_run_folder__keeps_its_configuration(tmp_path: Path) -> None:
    config = tiny_config(tmp_path / "run", surrogate__name="gated", surrogate__arguments__form="trace")
    folder = folder_for(config)
    folder.prepare(config)
    assert folder.config() == config and config_hash(folder.config()) == config_hash(config)


def test_run_folder__an_occupied_folder_is_refused_unless_resumed(tmp_path: Path) -> None:
    config = tiny_config(tmp_path / "run")
    folder_for(config).prepare(config)
    with pytest.raises(ConfigError, match="already holds a run; continue it with --run.resume true"):
        folder_for(config).prepare(config)
    folder_for(config).prepare(tiny_config(tmp_path / "run", run__resume=True, run__checkpoint_seconds=5.0))


def test_run_folder__a_changed_configuration_is_refused_by_name(tmp_path: Path) -> None:
    config = tiny_config(tmp_path / "run")
    folder_for(config).prepare(config)
    changed = tiny_config(tmp_path / "run", run__resume=True, train__lr=0.5, defence__gaussian_noise__sigma=0.1)
    with pytest.raises(ConfigError, match=r"defence.gaussian_noise.sigma: 0.05 → 0.1; train.lr: 0.02 → 0.5"):
        folder_for(changed).prepare(changed)


def test_run_folder__a_folder_with_other_files_is_refused(tmp_path: Path) -> None:
    (tmp_path / "thesis.tex").touch()
    config = tiny_config(tmp_path)
    with pytest.raises(ConfigError, match="holds other files"):
        folder_for(config).prepare(config)


def test_metrics__an_unfinished_line_and_epochs_to_come_are_dropped(tmp_path: Path) -> None:
    folder = RunFolder(tmp_path)
    for epoch in (1, 2, 3):
        folder.append_metrics({"epoch": epoch, "loss": None})
    with folder.metrics_file.open("a") as file:
        file.write('{"epoch": 4, "lo')
    assert [row["epoch"] for row in folder.metrics()] == [1, 2, 3]
    assert folder.keep_metrics(2) == [{"epoch": 1, "loss": None}, {"epoch": 2, "loss": None}]
    folder.append_metrics({"epoch": 3})
    assert [row["epoch"] for row in folder.metrics()] == [1, 2, 3]


def test_write_atomically__failure_leaves_the_old_content(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = tmp_path / "file"
    write_atomically(path, b"old")

    def fail(*_: object) -> None:
        raise OSError("broken")

    monkeypatch.setattr("os.replace", fail)
    with pytest.raises(OSError, match="broken"):
        write_atomically(path, b"new")
    assert path.read_bytes() == b"old" and list(tmp_path.iterdir()) == [path]


def test_write_atomically__others_may_read_what_they_may_read_of_any_new_file(tmp_path: Path) -> None:
    """Files made by tempfile are private: a challenge written for third parties could not be read by them."""
    (tmp_path / "plain").write_bytes(b"")
    write_atomically(tmp_path / "file", b"new")
    assert (tmp_path / "file").stat().st_mode == (tmp_path / "plain").stat().st_mode
