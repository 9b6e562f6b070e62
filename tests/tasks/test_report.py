"""The leaderboard as a page to send: whole, alone, and safe whatever a task is called; and a suite's own page."""

from __future__ import annotations

import base64
import re
import xml.etree.ElementTree as ET
from html.parser import HTMLParser
from pathlib import Path

import pytest

from gptcore.base.errors import InputError
from tasks.report.leaderboard import Leaderboard
from tasks.report.report import render, show_suite, write_report
from tasks.report.rows import Cell, Row
from tasks.report.score import Score
from tasks.report.suites import COMMANDS, EXPERIMENT, Suite, open_suite, read_leaderboard, record_row, row_of
from tasks.tracking.tracker import NOTE, Tracker
from tasks.tracking.views import PRETRAIN
from tests.tasks.markdown import tables

EVIL = "<script>alert(1)</script>"
COMMAND = "gptmill finetune rte --store 'my runs'"
CHECKPOINT, DATA = "c" * 64, {"rte": "d" * 64, "sst2": "e" * 64}


class Page(HTMLParser):
    """What a browser would make of a page: its elements' names and addresses, the rows of its tables."""

    def __init__(self, text: str) -> None:
        super().__init__()
        self.tags: list[str] = []
        self.addresses: list[str] = []
        self.rows: list[list[str]] = []
        self._inside = ""
        self.feed(text)

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.tags.append(tag)
        self.addresses += [value or "" for name, value in attrs if name in ("src", "href", "srcset", "data")]
        if tag == "tr":
            self.rows.append([])
        if tag in ("td", "th"):
            self.rows[-1].append("")
        self._inside = tag if tag in ("td", "th", "code") else self._inside

    def handle_endtag(self, tag: str) -> None:
        self._inside = "" if tag in ("td", "th") else self._inside

    def handle_data(self, data: str) -> None:
        if self._inside:
            self.rows[-1][-1] += data


def suite(label: str, lr: str) -> Suite:
    settings = {task: {"lr": lr, "epochs": "3"} for task in DATA}
    identity = {"checkpoint": CHECKPOINT, "tokenizer": "f" * 64, "data": DATA, "settings": settings}
    return Suite(label, "ours", identity, {"settings_of": "preset demo"}, COMMAND)


def recorded(tracker: Tracker, of: Suite, **percent: float) -> None:
    scores = [
        Score(task, seed, "dev", {task: value}, stderr={task: 1.5}, origin={**of.identity, "data": DATA[task]})
        for task, value in percent.items()
        for seed in range(2 if task == "sst2" else 1)
    ]
    with open_suite(tracker, of) as run:
        record_row(run, row_of(of, scores))


@pytest.fixture(scope="module")
def empty(tmp_path_factory: pytest.TempPathFactory) -> Tracker:
    return Tracker(f"sqlite:///{tmp_path_factory.mktemp('mlflow') / 'mlflow.db'}")


def test_a_board_without_rows_of_ours_is_one_line(empty: Tracker, tmp_path: Path) -> None:
    with pytest.raises(InputError, match=r"report: found no row of ours on the leaderboard, expected one; make it"):
        write_report(empty, tmp_path / "report.html")
    assert not list(tmp_path.iterdir())


@pytest.fixture(scope="module")
def tracker(empty: Tracker) -> Tracker:
    """Two rows of one checkpoint, one with an evil name; a floor; the pre-training's curve."""
    recorded(empty, suite("pre-trained", "0.0005"), rte=62.44, sst2=80.0)
    recorded(empty, suite(f"pre-trained {EVIL}", "0.001"), rte=60.0, sst2=90.0)
    recorded(empty, Suite("bag of words", "baseline", {"data": DATA}), rte=61.5, sst2=55.0)
    tags = {"kind": "pretrain", "store_digest": CHECKPOINT}
    with empty.open(PRETRAIN, "pretrain cccc", CHECKPOINT, tags, {}) as run:
        run.log_metrics([{"step": n, "time": 1.0, "metrics": {"train/loss": 7.0 / n}} for n in (1, 2, 3)])
    return empty


def test_the_page_holds_everything_and_asks_for_nothing(tracker: Tracker, tmp_path: Path) -> None:
    text = write_report(tracker, tmp_path / "report.html").read_text(encoding="utf-8")
    page = Page(text)
    rows = {row[0]: row for row in reversed(page.rows)}  # the first of a name: its scores
    assert rows["rte"][2:] == ["60.0±1.5°", "62.4±1.5", "61.5±1.5", "56.0"], "best average first, floor, paper"
    assert rows["average"][2:] == ["75.0", "71.2", "58.2", "73.7"]
    assert rows["seeds"][2:] == ["1-2", "1-2", "1-2", ""]
    assert rows["lr"][1:] == ["0.001", "0.0005"]
    assert "epochs" not in rows, "they have the same"
    for digest in (CHECKPOINT, "f" * 64, *DATA.values()):
        assert digest in text
    assert text.count("gptmill finetune rte --store &#39;my runs&#39;") == 2
    assert not {"script", "link", "iframe", "object"} & set(page.tags), "nothing is fetched, nothing runs"
    assert not re.search(r"url\(|@import|https?://", text)
    (kind, scores), (curves, code) = (address.split(",") for address in page.addresses)
    assert (kind, curves) == ("data:image/png;base64", "data:image/svg+xml;base64")
    assert text.index(scores) < text.index("<table"), "the picture opens the page"
    assert ET.fromstring(base64.b64decode(code)).tag.endswith("svg")
    assert "not compared in some columns, for lack of answers to the same rows: pre-trained" in text
    assert "pre-trained &lt;script&gt;alert(1)&lt;/script&gt;" in text


def test_a_tasks_name_is_no_markup(tracker: Tracker) -> None:
    of = suite("pre-trained", "0.0005")
    (run,) = tracker.search(EXPERIMENT, {"suite": of.digest})
    own = {EVIL: Cell("dev", 1, 70.0, 70.0, own_metric=f"f1 {EVIL}", own_data="a" * 64)}
    row = Row(of.name, "ours", "dev", {EVIL: 70.0}, own, suite=of.digest)
    page = Page(text := render(Leaderboard((row,), (f"a note {EVIL}",)), {of.digest: run}, [(EVIL, "data:,")]))
    assert "script" not in page.tags
    assert [EVIL, "dev", "70.0"] in page.rows
    assert "a" * 64 in text


def test_a_page_that_cannot_be_written_is_one_line(tracker: Tracker, tmp_path: Path) -> None:
    with pytest.raises(InputError, match=r"/none/report.html: cannot be written \(No such file or directory\)"):
        write_report(tracker, tmp_path / "none" / "report.html")
    for odd in (tmp_path, tmp_path / "rows.csv", Path("/dev/stdout")):  # what a rename would take the place of
        with pytest.raises(InputError, match=r"expected a file NAME.html"):
            write_report(tracker, odd)


def test_a_suites_own_page_has_its_scores_and_its_report(tracker: Tracker, monkeypatch: pytest.MonkeyPatch) -> None:
    board = read_leaderboard(tracker)
    of = suite("pre-trained", "0.0005")
    with open_suite(tracker, of) as run:
        show_suite(run, board)
        tags = run.metrics_and_tags()[1]
        assert ["sst2&emsp;", "80.0±1.5", "55.0±1.5", "91.3"] in tables(tags[NOTE])[0]
        assert tags[COMMANDS] == COMMAND
        files = {file.path for file in tracker.client.list_artifacts(run.run_id)}
        assert files == {"report.html", "scores.csv", "scores.png"}
        first, picture, *_ = tags[NOTE].split("\n\n")
        assert first.startswith(f"On average: {run.opened_tags['mlflow.runName']} 71.2")
        assert picture == f"![The scores below as a picture](get-artifact?path=scores.png&run_uuid={run.run_id})"
        monkeypatch.setattr(type(run), "set_tags", lambda *_: pytest.fail("written again"))
        show_suite(run, board)
