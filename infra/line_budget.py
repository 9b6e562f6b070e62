"""Lines of Python in the core, in the papers beside it and in the tests, each within its budget: part of `make lint`.

The budgets stand in pyproject.toml, under `tool.gptmill.lines`. Who needs more raises one in the same commit and says
why in its message; who has made room lowers it, so that the room stays.
"""

from __future__ import annotations

import sys
import tomllib
from collections.abc import Iterator
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
PRODUCT = ("flows", "tasks", "gptcore", "infra")
SLACK = 100
"""Lines by which a budget may lie above what is there: one that lies higher no longer holds anything."""


def sources(root: Path, folder: str) -> Iterator[Path]:
    """The Python files below a folder, but for what is built or cached there."""
    for path in sorted((root / folder).rglob("*.py")):
        inside = path.relative_to(root).parts[1:-1]
        if not any(part.startswith((".", "_")) for part in inside):
            yield path


def counted(root: Path) -> dict[str, int]:
    """The lines of `core`, `papers` and `tests` below the repository's top level ``root``."""
    lines = {"core": 0, "papers": 0, "tests": 0}
    for folder in (*PRODUCT, "tests"):
        for path in sources(root, folder):
            inside = path.relative_to(root).parts
            part = "tests" if folder == "tests" else "papers" if inside[1] == "papers" else "core"
            lines[part] += len(path.read_text(encoding="utf-8").splitlines())
    return lines


def problems(lines: dict[str, int], budgets: dict[str, int]) -> list[str]:
    """One line for each part that is above its budget, or so far below that the budget holds nothing."""
    told = []
    for part, number in lines.items():
        budget = budgets[part]
        if number > budget:
            told.append(
                f"pyproject.toml: tool.gptmill.lines.{part}: found {number:,} lines, {budget:,} allowed; make room, or "
                "raise the budget in this commit and say why in its message"
            )
        elif number < budget - SLACK:
            told.append(
                f"pyproject.toml: tool.gptmill.lines.{part}: found {number:,} lines, {budget:,} allowed; lower the "
                "budget, so that the room stays"
            )
    return told


def main() -> int:
    """Print the counts and what is wrong with them; the exit code."""
    budgets = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["tool"]["gptmill"]["lines"]
    lines = counted(ROOT)
    print(", ".join(f"{part} {number:,} of {budgets[part]:,} lines" for part, number in lines.items()))
    told = problems(lines, budgets)
    for line in told:
        print(line, file=sys.stderr)
    return 1 if told else 0


if __name__ == "__main__":
    sys.exit(main())
