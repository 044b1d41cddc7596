"""The handbook's sources, taken apart: pages, headings, code blocks, tables, links."""

from __future__ import annotations

import ast
import re
from collections import Counter
from dataclasses import dataclass
from pathlib import Path

ROOT = Path(__file__).parents[2]
DOCS = ROOT / "docs"
ENGLISH, CHINESE = DOCS / "en", DOCS / "zh"
PAGES = sorted(path.relative_to(ENGLISH).as_posix() for path in ENGLISH.rglob("*.md"))

_FENCE = re.compile(r"^(`{3,})\s*(\{code-block\}\s*)?([\w-]*)\s*$")
_OPTION = re.compile(r"^:([\w-]+):\s*(.*)$")
_LINK = re.compile(r"(?<!!)\[[^\]]*\]\(([^)\s]+)\)")
_IMAGE = re.compile(r"!\[[^\]]*\]\(([^)\s]+)\)|^`{3,}\s*\{(?:figure|image)\}\s*(\S+)", re.MULTILINE)
_NUMBER = re.compile(r"\d[\d.,]*\d|\d")


@dataclass(frozen=True)
class Block:
    """A block of code as a reader sees it; ``caption`` is the file it shall be saved as."""

    language: str
    code: str
    caption: str | None
    not_run: bool


def code_blocks(text: str) -> list[Block]:
    """Fenced blocks and ``code-block`` directives, in order; other directives are left out."""
    blocks: list[Block] = []
    lines = iter(text.splitlines())
    for line in lines:
        if not line.startswith("```"):
            continue
        found = _FENCE.match(line)
        inside = []
        fence = line[: len(line) - len(line.lstrip("`"))]
        for each in lines:
            if each.rstrip() == fence:
                break
            inside.append(each)
        if found is None:
            continue
        options: dict[str, str] = {}
        if found.group(2):
            while inside and (option := _OPTION.match(inside[0])):
                options[option.group(1)] = option.group(2)
                inside.pop(0)
        code = "\n".join(inside).strip("\n") + "\n"
        blocks.append(Block(found.group(3), code, options.get("caption"), options.get("class") == "not-run"))
    return blocks


def without_code(text: str) -> str:
    """The prose alone: no fenced block, no code span."""
    text = re.sub(r"^(`{3,})[^\n]*\n.*?^\1\s*$", "", text, flags=re.DOTALL | re.MULTILINE)
    return re.sub(r"`[^`\n]*`", "", text)


def heading_levels(text: str) -> list[int]:
    """Levels of the headings, in order."""
    return [len(found) for found in re.findall(r"^(#{1,6}) ", without_code(text), re.MULTILINE)]


def tables(text: str) -> list[list[str]]:
    """Pipe tables as lists of lines, the header first."""
    found: list[list[str]] = []
    current: list[str] = []
    for line in [*text.splitlines(), ""]:
        if line.startswith("|"):
            current.append(line)
        elif current:
            found.append(current)
            current = []
    return found


def numbers(table: list[str]) -> Counter[str]:
    """How often each number occurs in a table."""
    return Counter(_NUMBER.findall("\n".join(table)))


def links(text: str) -> list[str]:
    """Targets of links inside the repository."""
    prose = re.sub(r"^(`{3,})[^\n]*\n.*?^\1\s*$", "", text, flags=re.DOTALL | re.MULTILINE)
    return [target for target in _LINK.findall(prose) if not re.match(r"[a-z]+:", target)]


def images(text: str) -> list[str]:
    """Files of the pictures a page shows."""
    return [first or second for first, second in _IMAGE.findall(text)]


def included_objects(text: str) -> list[tuple[str, str]]:
    """Files of the repository and the dotted names of what a page takes out of them."""
    found = re.findall(r"^`{3,}\{literalinclude\}\s*(\S+)\n((?::[^\n]*\n)*)", text, re.MULTILINE)
    return [
        (file, name) for file, options in found for name in re.findall(r"^:pyobject:\s*(\S+)", options, re.MULTILINE)
    ]


def defined_names(source: str) -> set[str]:
    """Dotted names of the classes and functions of a Python file."""

    def names(body: list[ast.stmt], prefix: str) -> set[str]:
        own = [each for each in body if isinstance(each, ast.ClassDef | ast.FunctionDef | ast.AsyncFunctionDef)]
        return {prefix + each.name for each in own}.union(*(names(each.body, f"{prefix}{each.name}.") for each in own))

    return names(ast.parse(source).body, "")
