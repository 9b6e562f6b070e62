"""What MLflow's experiments look like to somebody who opens them: views of scores, descriptions."""

from __future__ import annotations

import dataclasses
from collections.abc import Iterable

from gptcore.nlu.blimp import BLIMP
from gptcore.nlu.blimp import COLUMNS as ZERO_SHOT
from gptcore.nlu.registry import REGISTRY
from tasks.report.leaderboard import BOLD, Leaderboard, published_notes
from tasks.report.rows import Row, is_paper
from tasks.report.suites import EXPERIMENT, PUBLISHED_EXPERIMENT, read_leaderboard, record_beside, record_published
from tasks.report.table import grid
from tasks.tracking.tracker import Tracker
from tasks.tracking.views import LEADERBOARD_VIEW, PRETRAIN, View, metric, save_views, tag, view_path

SCORES = tuple(c for name, spec in REGISTRY.items() for c in ([name] if name in spec.paper else spec.paper))
"""The thirteen columns of a task each, MNLI's two; RACE's parts are left to the full table."""
_GAP = "&emsp;"  # MLflow sets the description's columns without one
_ROWS = 25  # of the description's table: MLflow takes 20,000 characters
_LETTER, _MARGINS, _ARROW, _NARROWEST = 7, 24, 18, 50  # pixels of a column's header
_SPLIT_AND_SEEDS = {tag("split"): 122, tag("seeds"): 60}  # the last that a window of 1600 pixels shows
_BY_AVERAGE = metric("average")


def _widths(names: Iterable[str]) -> dict[str, int]:
    return {metric(name): max(_LETTER * len(name) + _MARGINS, _NARROWEST) for name in names}


_NUMBERS = _widths(("average", *SCORES))
_NUMBERS[_BY_AVERAGE] += _ARROW
LEADERBOARD_PAGE = View(
    LEADERBOARD_VIEW, "Leaderboard", "tags.kind != 'finetune'", _BY_AVERAGE, {**_NUMBERS, **_SPLIT_AND_SEEDS}
)
OWN_VIEW = "own-tasks"
BLIMP_PAGE = View(BLIMP, "BLiMP by field", f"metrics.`{BLIMP}` > 0", metric(BLIMP), _widths(ZERO_SHOT))
PUBLISHED_PAGE = View(
    "published", "Published scores", "", _BY_AVERAGE, {**_NUMBERS, **_widths([BLIMP]), tag("table"): 110}
)
_PERPLEXITY = metric("validation/perplexity")
_MEASURED = {"validation/bigram_perplexity": 210, "validation/trigram_perplexity": 210, "train/loss": 90}
_MEASURED |= {"tokens_seen": 110, "tokens_per_second": 150}
_OF_MODELS = {_PERPLEXITY: 170, **{metric(name): width for name, width in _MEASURED.items()}}
PRETRAIN_PAGE = View("perplexities", "Held-out perplexity", "", _PERPLEXITY, _OF_MODELS, ascending=True)


def show_experiments(tracker: Tracker) -> None:
    """Bring views and descriptions up to date with the rows that MLflow holds.

    Cheap where nothing changed: it reads the rows and the experiments' tags, and writes what differs.
    """
    record_published(tracker)
    board = read_leaderboard(tracker)
    ours, theirs = tracker.experiment(EXPERIMENT), tracker.experiment(PUBLISHED_EXPERIMENT)
    here, there = view_path(ours, LEADERBOARD_PAGE.key), view_path(theirs, PUBLISHED_PAGE.key)
    record_beside(tracker, board)
    newest = next((row.own_tasks for row in board.rows if row.kind == "ours"), [])  # who has just made them looks
    first = {_BY_AVERAGE: _NUMBERS[_BY_AVERAGE], **_widths([*newest, *board.own_tasks])}
    numbers = {**first, **_NUMBERS, **_widths(board.untrained)}  # those that some row has
    told = {row.suite: row.differs for row in board.rows}
    for run in tracker.search(EXPERIMENT, {"kind": "ours"}):
        if (words := told.get(run.data.tags["suite"], "")) != run.data.tags.get("differs", ""):
            tracker.client.set_tag(run.info.run_id, "differs", words)
    columns = {**numbers, **LEADERBOARD_PAGE.columns, **({tag("differs"): 200} if any(told.values()) else {})}
    views = [dataclasses.replace(LEADERBOARD_PAGE, columns=columns)]
    views += [BLIMP_PAGE] if BLIMP in board.zero_shot else []
    others = ""
    if own := board.own_tasks:
        views.append(View(OWN_VIEW, "Own tasks", LEADERBOARD_PAGE.where, metric((newest or own)[0]), _widths(own)))
        others = f" - [own tasks]({view_path(ours, OWN_VIEW)})"
    save_views(tracker, EXPERIMENT, views, _description(board, here, f"[published scores]({there}){others}"))
    models = view_path(tracker.experiment(PRETRAIN), PRETRAIN_PAGE.key)
    curves = f"[Held-out perplexities]({models}) - [curves]({models}&compareRunsMode=CHART)\n"
    save_views(tracker, PRETRAIN, [PRETRAIN_PAGE], curves)
    words = f"Published test scores, x 100. [Open them as a table]({there}), or [ours]({here}).\n"
    words += "".join(f"\n{note}\n" for note in published_notes(board.ordered))
    save_views(tracker, PUBLISHED_EXPERIMENT, [PUBLISHED_PAGE], words)


def _description(board: Leaderboard, here: str, others: str) -> str:
    """The table of the best rows in Markdown, with their errors, under links to the views."""
    ours = [row for row in board.ordered if row.kind != "published"]
    ours.sort(key=lambda row: row.average(board.tasks) or 0.0, reverse=True)
    paper = [row for row in board.rows if is_paper(row)]
    columns = ("average", *SCORES, *board.untrained)
    header = tuple(name + _GAP for name in ("suite", "split", *columns))
    shown = [*ours[:_ROWS], *paper]
    texts = [[record[column] for column in columns] for record in board.in_markdown(shown)]
    rows = [(row.told + _GAP, row.split + _GAP, *each) for row, each in zip(shown, texts, strict=True)]
    more = f"\n\nThe best {_ROWS} of {len(ours)} rows." if len(ours) > _ROWS else ""
    links = f"[**Open the leaderboard**]({here}) - {others} - {_best(board, ours, paper)}"
    return f"{links}\n\n{grid(header, rows)}{more}\n\n{BOLD}\n"


def _best(board: Leaderboard, ours: list[Row], paper: list[Row]) -> str:
    """The first line's numbers: the UI folds the rest away."""
    scored = [
        ("the paper" if is_paper(row) else row.name, row, row.average(board.tasks)) for row in (*ours[:1], *paper)
    ]
    averages = [f"{name} {average:.1f} ({row.split})" for name, row, average in scored if average is not None]
    return f"average x 100: {', '.join(averages) or 'no row has every task yet'}"
