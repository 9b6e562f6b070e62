"""The budgets of lines: what is counted as what, and when one does not hold."""

from __future__ import annotations

from pathlib import Path

import pytest

from infra.line_budget import SLACK, counted, problems


def test_lines_count_for_the_core_the_papers_or_the_tests(tmp_path: Path) -> None:
    files = {
        "gptcore/models/gpt.py": 3,
        "gptcore/papers/graphs/graph.py": 5,
        "flows/papers/__init__.py": 1,
        "tests/papers/test_graph.py": 7,
        "infra/docs/_build/made.py": 11,
        "tasks/__pycache__/old.py": 13,
        "tasks/table.toml": 17,
    }
    for name, number in files.items():
        (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / name).write_text("line\n" * number, encoding="utf-8")
    assert counted(tmp_path) == {"core": 3, "papers": 6, "tests": 7}


@pytest.mark.parametrize(
    ("number", "told"),
    [
        (1001, "tool.gptmill.lines.core: found 1,001 lines, 1,000 allowed; make room"),
        (1000, ""),
        (1000 - SLACK, ""),
        (999 - SLACK, "tool.gptmill.lines.core: found 899 lines, 1,000 allowed; lower the budget"),
    ],
)
def test_a_budget_holds_from_above_and_from_below(number: int, told: str) -> None:
    assert told in "".join(problems({"core": number}, {"core": 1000}))
    assert bool(told) == bool(problems({"core": number}, {"core": 1000}))
