from __future__ import annotations

from pathlib import Path

import pytest

from attention_cem.training import ConfigError
from attention_cem.training.toml_reading import read_toml


def test_read_toml__gives_plain_data(tmp_path: Path) -> None:
    file = tmp_path / "a.toml"
    file.write_text("name = '切分'\n[table]\nlist = [1, 2]\n", encoding="utf-8")
    assert read_toml(file, "study") == {"name": "切分", "table": {"list": [1, 2]}}


@pytest.mark.parametrize(
    ("content", "message"),
    [
        (b"#" * (2**20 + 1), "is larger than 1048576 bytes: this is no study file"),
        (b"[table\n", "is not valid TOML"),
        (b"\xff\xfe", "is not valid TOML"),
        (None, "cannot read the study .*: No such file or directory"),
    ],
    ids=["large", "broken", "not text", "missing"],
)
def test_read_toml__says_what_is_wrong_with_a_file(tmp_path: Path, content: bytes | None, message: str) -> None:
    file = tmp_path / "a.toml"
    if content is not None:
        file.write_bytes(content)
    with pytest.raises(ConfigError, match=message):
        read_toml(file, "study")


def test_read_toml__a_folder_is_no_file(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match="cannot read the configuration"):
        read_toml(tmp_path, "configuration")
