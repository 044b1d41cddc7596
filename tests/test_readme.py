import re
from pathlib import Path

import pytest

ROOT = Path(__file__).parent.parent
READMES = {name: (ROOT / name).read_text(encoding="utf-8") for name in ("README.md", "README.zh.md")}


def blocks(language: str) -> list[str]:
    return [code for text in READMES.values() for code in re.findall(rf"```{language}\n(.*?)```", text, re.DOTALL)]


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
    for text in READMES.values():
        for target in re.findall(r"\]\(([^)#:]+)\)", text):
            assert (ROOT / target).exists(), target


def test_readme__both_languages_show_the_same_code_commands_and_links() -> None:
    def without_remarks(text: str) -> list[str]:
        code = "\n".join(re.findall(r"```(?:sh|python)\n(.*?)```", text, re.DOTALL))
        return [line.split("#")[0].rstrip() for line in code.splitlines()]

    english, chinese = READMES.values()
    assert without_remarks(english) == without_remarks(chinese)
    links = [set(re.findall(r"\]\(([^)]+)\)", text)) - set(READMES) for text in (english, chinese)]
    assert links[0] == links[1]


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
