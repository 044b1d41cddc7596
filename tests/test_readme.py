import re
from pathlib import Path

import pytest

ROOT = Path(__file__).parent.parent
README = (ROOT / "README.md").read_text()


def blocks(language: str) -> list[str]:
    return re.findall(rf"```{language}\n(.*?)```", README, re.DOTALL)


@pytest.mark.parametrize("code", blocks("python"))
def test_readme__python_runs_as_printed(code: str) -> None:
    scope: dict[str, object] = {}
    exec(code, scope)
    assert scope["out"].rob_loss.item() > 0


def test_readme__make_commands_exist() -> None:
    verbs = set(re.findall(r"^([a-z]+):", (ROOT / "Makefile").read_text(), re.MULTILINE))
    named = {verb for block in blocks("sh") for verb in re.findall(r"^make (\w+)", block, re.MULTILINE)}
    assert {"demo", "test"} <= named <= verbs


def test_readme__links_lead_somewhere() -> None:
    for target in re.findall(r"\]\(([^)#:]+)\)", README):
        assert (ROOT / target).exists(), target


def test_package__version_is_stated_once() -> None:
    import attention_cem

    assert re.fullmatch(r"\d+\.\d+\.\d+", attention_cem.__version__)
    assert attention_cem.__version__ not in (ROOT / "pyproject.toml").read_text()


def test_package__every_public_name_can_be_had() -> None:
    import attention_cem

    for name in attention_cem.__all__:
        assert getattr(attention_cem, name) is not None
    with pytest.raises(AttributeError, match="no_such_name"):
        _ = attention_cem.no_such_name
