"""Command blocks of the documentation: found on a page, run in one shell a page, compared with what the page shows.

A block is fenced as ``console``; its commands stand behind ``$ `` (more lines of one behind ``> ``), what they print
below them. A line ``...`` stands for any lines, ``...`` in a line for any text. Numbers and digests compare as equal,
since settings are tiny here. A comment on the line above a block says ``run`` (on a page that is no tutorial), ``not
run: REASON``, or ``fails`` (an exit code other than 0 is what it shows).
"""

from __future__ import annotations

import os
import re
import shlex
import signal
import subprocess
import sys
from collections.abc import Iterator, Sequence
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
DOCS = ROOT / "infra" / "docs"
_FENCE = re.compile(r"(?:^<!-- (?P<mark>[^\n]*?) -->\n)?^```console\n(?P<body>.*?)^```$", re.MULTILINE | re.DOTALL)
_NUMBER = re.compile(r"\b(?=[0-9a-f]*\d)[0-9a-f]{6,64}\b|\d[\d,._]*(?<=\d)")
_PROGRAMS = {
    "gptmill": f'exec "{sys.executable}" -m tests.infra.tiny "$@"',
    "python": f'exec "{sys.executable}" "$@"',
    # What the environment is made for, once it is there; the suite is what runs this.
    "make": 'case "$1" in demo) exec gptmill pipeline --preset demo --seeds 3;; test) ;; *) exec gptmill "$1";; esac',
}
_BEGIN, _END = "\x1e", "\x1f"  # around what a command prints


@dataclass(frozen=True)
class Command:
    """What is typed, and the lines that the page shows below it."""

    text: str
    printed: tuple[str, ...]


@dataclass(frozen=True)
class Block:
    """A fenced block of commands."""

    page: Path
    line: int
    mark: str
    commands: tuple[Command, ...]

    @property
    def where(self) -> str:
        return f"{self.page.relative_to(ROOT)}:{self.line}"


def pages() -> list[Path]:
    """The first page and every page of the site that is written by hand."""
    return [ROOT / "README.md", *(page for page in sorted(DOCS.rglob("*.md")) if "generated" not in page.parts)]


def is_tutorial(page: Path) -> bool:
    """Whether all blocks of a page are run that do not say otherwise."""
    return page.parent.name == "tutorials" or page.name == "README.md"


def blocks_of(page: Path) -> list[Block]:
    """Every block of a page, in its order."""
    text = page.read_text(encoding="utf-8")
    return [
        Block(page, text.count("\n", 0, found.start("body")), found["mark"] or "", tuple(_commands(found["body"])))
        for found in _FENCE.finditer(text)
    ]


def run_blocks(page: Path) -> list[Block]:
    """The blocks of a page that are run."""
    return [
        block
        for block in blocks_of(page)
        if not block.mark.startswith("not run") and (is_tutorial(page) or block.mark in ("run", "fails"))
    ]


def _commands(body: str) -> Iterator[Command]:
    typed: list[str] = []
    printed: list[str] = []
    for line in body.splitlines():
        if line.startswith("$ "):
            if typed:
                yield Command("\n".join(typed), tuple(printed))
            typed, printed = [line[2:]], []
        elif line.startswith("> ") and not printed:
            typed.append(line[2:])
        else:
            printed.append(line)
    yield Command("\n".join(typed), tuple(printed))


def programs(command: str) -> Iterator[list[str]]:
    """The arguments of each `gptmill` in a command's text."""
    reader = shlex.shlex(command.partition("<<")[0].replace("\\\n", " "), posix=True, punctuation_chars=True)
    reader.wordchars += "@%,:{}^+"
    words: list[str] = []
    for word in [*reader, ";"]:
        if set(word) <= set("();<>|&"):
            if words[:1] == ["gptmill"]:
                yield words[1:]
            words = []
        else:
            words.append(word)


def run(blocks: Sequence[Block], folder: Path, timeout: float) -> list[tuple[str, int]]:
    """Run blocks in one shell, each command's output told apart.

    :param folder: where the shell is; ``bin`` in it holds the program with tiny settings.
    :return: what each command printed, and its exit code.
    """
    script = ["set -o pipefail"]
    for command in (command for block in blocks for command in block.commands):
        script += [f"printf '{_BEGIN}'", command.text, f"printf '{_END}%s\\n' $?"]
    script += ["kill $(jobs -p) 2> /dev/null", "gptmill down > /dev/null 2>&1", "wait"]  # what a page leaves behind
    programs = folder / "bin"
    programs.mkdir()
    for name, line in _PROGRAMS.items():
        path = programs / name
        path.write_text(f"#!/bin/sh\n{line}\n", encoding="utf-8")
        path.chmod(0o755)
    others = ("PREFECT_", "MLFLOW_", "GPTMILL_")  # the tests' own servers and home
    kept = {name: value for name, value in os.environ.items() if not name.startswith(others)}
    environment = {**kept, "PATH": f"{programs}:{os.environ['PATH']}", "PYTHONPATH": str(ROOT)}
    shell = subprocess.Popen(
        ["bash", "-c", "\n".join(script)],
        cwd=folder,
        env=environment | {"DO_NOT_TRACK": "1", "PREFECT_SERVER_ANALYTICS_ENABLED": "false"},
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        start_new_session=True,
    )
    try:
        output, _ = shell.communicate(timeout=timeout)
    finally:
        with suppress(ProcessLookupError):
            os.killpg(shell.pid, signal.SIGKILL)
    parts = (part.partition(_END) for part in output.split(_BEGIN)[1:])
    return [(printed, int(rest.partition("\n")[0])) for printed, _, rest in parts]


def differs(printed: str, shown: Sequence[str]) -> str | None:
    """The first run of shown lines that is not among the printed ones, in this order; None where all are."""
    lines = [_plain(line) for line in printed.splitlines()]
    at = 0
    for part in _parts(shown):
        patterns = [re.compile(".*".join(map(re.escape, _plain(line).split("...")))) for line in part]
        fits = (
            start
            for start in range(at, len(lines) - len(part) + 1)
            if all(pattern.fullmatch(line) for pattern, line in zip(patterns, lines[start:], strict=False))
        )
        found = next(fits, None)
        if found is None:
            return "\n".join(part)
        at = found + len(part)
    return None


def _parts(shown: Sequence[str]) -> Iterator[list[str]]:
    part: list[str] = []
    for line in [*shown, "..."]:
        if line.strip() == "...":
            if part:
                yield part
            part = []
        else:
            part.append(line)


def _plain(line: str) -> str:
    """A line with numbers, marks of scores and the width of its blanks taken out."""
    text = re.sub(r"[#°*±-]+", "", _NUMBER.sub("#", line))
    return " ".join(re.sub(r"#+", "", text).split())
