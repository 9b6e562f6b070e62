"""The README's pictures and its table of the demo, all of one fresh run: `make readme-figures`.

Runs `gptmill pipeline --preset demo --seeds 3`, as `make demo` does, in a folder of its own, opens the pages of a stack
on it, and writes

- `.readme/leaderboard.png`, `form.png` and `result-card.png`, as a browser shows them;
- the README's table between its two markers, as the terminal shows it;
- `.readme/demo.json`: the digests and scores that they show, and the SHA-256 of each picture, to which
  `tests/test_readme.py` holds README and pictures; and which suites the pictures show, where the table is made anew
  without them.

The other pictures come of longer runs, of the commands that stand beside them in the documentation.
"""

from __future__ import annotations

import hashlib
import re
import shutil
import sys
import tempfile
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from playwright.sync_api import expect, sync_playwright

from gptcore.base.files import write_json_atomic
from tasks.report.leaderboard import Leaderboard
from tasks.report.rows import is_paper, one_decimal
from tasks.report.suites import read_leaderboard
from tasks.tracking.tracker import Tracker
from tests.trials import scenarios
from tests.trials.pages import CHROMIUM, mlflow, prefect

ROOT = Path(__file__).resolve().parents[3]
FOLDER = ROOT / ".readme"
PICTURES = {"leaderboard": "mlflow-leaderboard", "form": "prefect-form", "result-card": "prefect-card"}
"""Name -> the screenshot that it is."""
BEGIN, END = "<!-- demo:begin -->\n", "<!-- demo:end -->"
_TASK, _PAPER = "rte", 56.0  # settings as in the pipeline, so that the run of the form finds its score in the store
_LAST = "average"  # line of the table
_SECONDS = 60


def main() -> int:
    """Make all of them anew."""
    scenarios.options(__doc__).parse_args()
    with tempfile.TemporaryDirectory(prefix="gptmill-demo-") as folder:
        variables = scenarios.environment(Path(folder) / ".gptmill", {})
        _gptmill("pipeline", "--preset", "demo", "--seeds", "3", "--store", f"{folder}/runs/demo", variables=variables)
        with _stack(f"{folder}/runs/demo", variables) as (prefect_url, mlflow_url):
            expect.set_options(timeout=1000 * _SECONDS)
            with sync_playwright() as playwright:
                browser = playwright.chromium.launch(executable_path=shutil.which("chromium"), args=CHROMIUM)
                page = prefect.new_page(browser)
                prefect.check_prefect(page, prefect_url, Path(folder), _TASK, _PAPER)
                mlflow.check_leaderboard(page, Tracker(mlflow_url), Path(folder))
                browser.close()
            scores = scores_of(read_leaderboard(Tracker(mlflow_url)))
        table = table_of(_gptmill("leaderboard", variables=variables))
        for name, screenshot in PICTURES.items():
            shutil.copyfile(Path(folder) / f"{screenshot}.png", FOLDER / f"{name}.png")
    pictured = sorted(row["suite"][:6] for row in scores.values() if row["suite"])
    taken = {"pictured": pictured, "pictures": {name: sha256(name) for name in PICTURES}}
    write_json_atomic(FOLDER / "demo.json", {"rows": scores, **taken})
    readme = ROOT / "README.md"
    readme.write_text(with_table(readme.read_text(encoding="utf-8"), table), encoding="utf-8")
    print(f"{', '.join(PICTURES)}, demo.json and the README's table: {', '.join(scores)}")
    return 0


def sha256(picture: str) -> str:
    """The SHA-256 of a picture's file."""
    return hashlib.sha256((FOLDER / f"{picture}.png").read_bytes()).hexdigest()


def scores_of(board: Leaderboard) -> dict[str, dict[str, Any]]:
    """Name of a row -> its suite's digest, its cells, its average: of ours, the best floor and the paper's."""
    ours, papers = [row for row in board.rows if row.kind == "ours"], [row for row in board.rows if is_paper(row)]
    return {
        row.name: {
            "suite": row.suite,
            "cells": {column: row.text(column) for column in row.percent},
            _LAST: one_decimal(row.average(board.tasks)),
        }
        for row in [*ours, *board.floors, *papers]
    }


def table_of(printed: str) -> str:
    """The table of what `gptmill leaderboard` prints, down to its averages, as Markdown has code."""
    head, rows, _ = printed.partition(f"\n{_LAST} ")
    assert rows, f"no line of averages in {printed}"
    lines = [*head.split("\n"), printed[len(head) :].splitlines()[1]]
    return "".join(f"    {line}".rstrip() + "\n" for line in lines)


def with_table(readme: str, table: str) -> str:
    """The README with another table between the markers."""
    replaced = re.subn(f"(?s)(?<={re.escape(BEGIN)}).*?(?={re.escape(END)})", lambda _: table, readme)
    assert replaced[1] == 1, f"README.md: found the markers {replaced[1]} times, expected once"
    return replaced[0]


def _gptmill(*arguments: str, variables: Mapping[str, str]) -> str:
    return scenarios.output_of("flows.cli", *arguments, variables=variables)


@contextmanager
def _stack(store: str, variables: Mapping[str, str]) -> Iterator[tuple[str, str]]:
    """Prefect and MLflow on a store: their addresses."""
    first, second = scenarios.free_ports(2)
    options = ("--store", store, "--prefect-port", str(first), "--mlflow-port", str(second))
    try:
        _gptmill("up", *options, variables=variables)
        yield f"http://127.0.0.1:{first}", f"http://127.0.0.1:{second}"
    finally:
        _gptmill("down", variables=variables)


if __name__ == "__main__":
    sys.exit(main())
