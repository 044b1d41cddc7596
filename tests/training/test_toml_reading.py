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
        (b"a = " + b"[" * 5000, "is nested deeper than 32 levels"),
        (b"a = " + b"{a = " * 5000, "is nested deeper than 32 levels"),
        (b"a = " + b"[" * 32 + b"]" * 32, "a is nested deeper than 32 levels"),
        (b"[" + b"a." * 3000 + b"a]", "is nested deeper than 32 levels"),
        (b"a = " + b"1" * 5000, "a whole number of more than 4300 digits"),
        (
            b"[t]\na = [0x" + b"f" * 5000 + b"]",
            "t.a: a whole number lies from -2\\^63 to 2\\^63 - 1, got one of 20000 bits",
        ),
        (b"a = 9223372036854775808", "a: a whole number lies from -2\\^63 to 2\\^63 - 1"),
        (b"[t]\na = 2024-01-31", "t.a must be .*, got the date 2024-01-31; write it in quotes"),
        (b"a = [12:30:00]", "a must be .*, got the time 12:30:00; write it in quotes"),
        (None, "cannot read the study .*: No such file or directory"),
    ],
    ids=lambda value: repr(value)[:30],
)
def test_read_toml__says_what_is_wrong_with_a_file(tmp_path: Path, content: bytes | None, message: str) -> None:
    file = tmp_path / "a.toml"
    if content is not None:
        file.write_bytes(content)
    with pytest.raises(ConfigError, match=message):
        read_toml(file, "study")


def test_read_toml__what_people_write_stays_as_it_is(tmp_path: Path) -> None:
    file = tmp_path / "a.toml"
    file.write_text("a = -9223372036854775808\nb = " + "[" * 31 + "]" * 31 + "\nc = {d = [true, 1.5, inf]}\n")
    tree = read_toml(file, "study")
    assert tree["a"] == -(2**63) and tree["c"] == {"d": [True, 1.5, float("inf")]}


def test_read_toml__a_folder_is_no_file(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match="cannot read the configuration"):
        read_toml(tmp_path, "configuration")
