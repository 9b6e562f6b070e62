"""The leaderboard as one page that can be sent: `gptmill report`.

Scores with their errors and floors, curves, what the rows' settings differ in, digests of data and models, the commands
that repeat it. The page holds all of it and asks for nothing: styles and pictures are inside, and whatever a user named
is escaped. `templates/report.html` is its template.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator, Mapping, Sequence
from datetime import UTC, datetime
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple, cast

from gptcore import __version__
from gptcore.base.errors import InputError
from gptcore.base.files import sha256_json, write_bytes_atomic
from gptcore.nlu.registry import COLUMNS
from tasks.report.card import data_address
from tasks.report.differences import side_by_side
from tasks.report.figures import loss_curve
from tasks.report.leaderboard import Leaderboard
from tasks.report.paired import compare_rows
from tasks.report.rows import Kind, Row, is_paper, split_of
from tasks.report.score_figure import PICTURE, draw_scores
from tasks.report.suites import COMMANDS, EXPERIMENT, kept_row, read_leaderboard, written_at
from tasks.report.table import grid, rendered
from tasks.tracking.tracker import NOTE, Run, Tracker, scratch_folder
from tasks.tracking.views import PRETRAIN

if TYPE_CHECKING:
    from mlflow.entities import Run as MlflowRun

_A_TABLE = 5  # rows of ours: as many columns as a printed page has room for
_REPORTED = "reported"  # of a run: what its report was made of
_Figures = Sequence[tuple[str, str]]
_TOTALS = ("average", "glue")
_CURVES = ("train/loss", "train/word_loss", "validation/loss")
_COUNTED = ("bigram", "trigram")


def write_report(tracker: Tracker, out: Path) -> Path:
    """Write the page of all that MLflow holds.

    :raises InputError: there is no row of ours yet, or the file cannot be written.
    """
    if out.suffix != ".html":  # an earlier report is replaced, and nothing else
        raise InputError(f"--out: found '{out}', expected a file NAME.html")
    compare_rows(tracker)
    board = read_leaderboard(tracker)
    runs = {run.data.tags["suite"]: run for run in tracker.search(EXPERIMENT, {"kind": "ours"})}
    if not any(row.kind == "ours" for row in board.rows):
        raise InputError("report: found no row of ours on the leaderboard, expected one; make it: gptmill pipeline")
    with scratch_folder() as folder:
        text = render(board, runs, list(_figures(tracker, runs.values())), [draw_scores(board, folder)])
    try:
        write_bytes_atomic(out, text.encode())
    except OSError as error:
        raise InputError(f"{out}: cannot be written ({error.strerror})") from None
    return out


def show_suite(run: Run, board: Leaderboard) -> None:
    """Give a suite's own page what it reached, as its description, and artifacts: report, picture, numbers as CSV.

    That is what MLflow holds of it, on its own tasks alone, whichever calls scored them. Costs one call where they are
    as they were.
    """
    whole = run.tracker.client.get_run(run.run_id)
    tags, row = whole.data.tags, kept_row(whole, cast(Kind, whole.data.tags["kind"]))
    if not row.percent:  # all its fine-tunes failed
        return
    others = (other for other in board.rows if other.kind != "ours" and other.suite != row.suite)
    alone = Leaderboard((row, *others), board.notes).beside_the_paper().only(list(row.per_task))
    made = sha256_json([PICTURE, alone.records(), tags.get(COMMANDS)])
    if row.kind == "ours" and tags.get(_REPORTED) != made:
        with scratch_folder() as folder:
            scores = draw_scores(alone, folder)
            page = render(alone, {row.suite: whole}, list(_figures(run.tracker, [whole])), [scores])
            (folder / "report.html").write_text(page, encoding="utf-8")
            (folder / "scores.csv").write_text(f"{alone.render('csv')}\n", encoding="utf-8")
            run.tracker.client.log_artifacts(run.run_id, str(folder))
    started = [line for line in tags.get(NOTE, "").splitlines() if line.startswith("Prefect run: ")]
    address = f"get-artifact?path={PICTURE}&run_uuid={run.run_id}"  # as MLflow's page reads it
    picture = f"![The scores below as a picture]({address})" if row.kind == "ours" else ""
    note = "\n\n".join([_described(alone, row, picture), *started])
    if (tags.get(NOTE), tags.get(_REPORTED)) != (note, made):
        run.set_tags({NOTE: note, _REPORTED: made})


def _described(board: Leaderboard, row: Row, picture: str) -> str:
    """A row beside the floor and the paper, in Markdown; a column of MLflow's descriptions has no gap of its own."""
    scores = _scores(board, [row])
    lines = {line.name: [text for text, _ in line.cells] for line in scores.lines}
    beside = ", ".join(f"{name} {text}" for (name, _), text in zip(scores.head, lines.get("average", ()), strict=False))
    head = tuple(f"{name} {below}".strip() + "&emsp;" for name, below in (("", ""), *scores.head))
    body = grid(head, [(f"{name}&emsp;", *texts) for name, texts in lines.items()])
    first = f"On average: {beside}." if beside else ""  # what the page shows of a description that it folds
    return "\n\n".join(filter(None, [first, picture, body]))


def render(board: Leaderboard, runs: Mapping[str, MlflowRun], figures: _Figures, scores: _Figures = ()) -> str:
    """The page as HTML.

    :param runs: suite -> its run, of our rows.
    :param figures: caption and address (``data:``) of each curve, ``scores``: of what opens the page.
    """
    board = board.beside_the_paper()
    ours = sorted((r for r in board.rows if r.kind == "ours"), key=lambda r: -(r.average(board.tasks) or 0.0))
    best = ours[0]
    average = best.average(board.tasks)
    synthetic = "; the rows are synthetic (generated, not the public ones)" if "synthetic" in best.split else ""
    lead = f"{len(ours)} rows" if len(ours) > 1 else best.told
    if average is not None and len(board.tasks) > 1:
        lead += f"; the best, {best.told}: {average:.1f} on average of {len(board.tasks)} tasks (x 100)"
    parts = [slice(start, start + _A_TABLE) for start in range(0, len(ours), _A_TABLE)]
    lines = side_by_side([runs[row.suite].data.params for row in ours])
    return rendered(
        "report.html",
        title="Leaderboard of gptmill",
        lead=f"{lead}{synthetic}.",
        scores=scores,
        tables=[_scores(board, ours[part]) for part in parts],
        notes=board.explained(bold=True),
        figures=figures,
        differing=[(ours[part], [(name, values[part]) for name, values in lines]) for part in parts if lines],
        origins=[(row.name, list(_origin(row, runs[row.suite]))) for row in ours],
        data=_data(ours),
        repeated=[(row.name, runs[row.suite].data.tags.get(COMMANDS, "")) for row in ours],
        version=f"gptmill {__version__}, {datetime.now(UTC):%Y-%m-%d %H:%M} UTC",
    )


class _Line(NamedTuple):
    """One task, or a total, over the rows of a table."""

    name: str
    rows: str
    """The splits of ours."""
    cells: Sequence[tuple[str, bool]]
    """Text, and whether it is bold (:meth:`Leaderboard.bold`)."""
    total: bool


class _Table(NamedTuple):
    head: Sequence[tuple[str, str]]
    """Name of a column, and what stands under it."""
    lines: Sequence[_Line]


def _scores(board: Leaderboard, rows: Sequence[Row]) -> _Table:
    """Tasks as lines, rows as columns; behind ours the best floors of the data that they are on; the paper."""
    floors = board.floors_beside(rows) if rows[0].kind == "ours" else []
    columns = [*rows, *floors, *(row for row in board.rows if is_paper(row))]
    head = [("the paper", "test rows") if is_paper(row) else (row.name, row.differs) for row in columns]
    records = [board.record(row, nothing="") for row in columns]
    names = [*board.own_tasks, *COLUMNS, *(_TOTALS if len(board.tasks) > 1 else ()), *board.untrained, "seeds"]
    lines = []
    for name in names:
        texts = [record[name] for record in records]
        best = board.bold(name, columns, texts) if name != "seeds" else [False] * len(columns)
        cells = list(zip(texts, best, strict=True))
        splits = split_of({row.name: row.cells[name] for row in rows if name in row.cells}).partition(",")[0]
        if any(texts[: len(rows)]):
            lines.append(_Line(name, splits, cells, name in (*_TOTALS, *board.untrained, "seeds")))
    return _Table(head, lines)


def _origin(row: Row, run: MlflowRun) -> Iterator[tuple[str, str]]:
    params, tags = run.data.params, run.data.tags
    yield "row", row.suite
    yield "model", params.get("checkpoint", "random weights")
    if origin := tags.get("origin"):
        yield "origin", origin
    yield "tokenizer", params.get("tokenizer", "-")
    yield "settings of", tags.get("settings_of") or "-"
    yield "commits", " ".join(row.commits) or "-"
    yield "last made", f"{written_at(run)} UTC"


def _data(ours: Sequence[Row]) -> list[tuple[str, list[tuple[str, str]]]]:
    """For each set of rows that ours are on, by whose it is: task -> fingerprint of its files."""
    rows_of: dict[tuple[tuple[str, str], ...], list[str]] = {}
    for row in ours:
        own = {name: cell.own_data for name, cell in row.cells.items() if cell.own_data}
        scored = {task: digest for task, digest in row.data.items() if task in row.per_task}
        rows_of.setdefault(tuple(sorted({**scored, **own}.items())), []).append(row.name)
    return [(", ".join(names), list(files)) for files, names in rows_of.items()]


def _figures(tracker: Tracker, suites: Iterable[MlflowRun]) -> Iterator[tuple[str, str]]:
    """The loss of each pre-training that a row starts from, as a picture inside the page."""
    wanted = {run.data.params["checkpoint"] for run in suites if "checkpoint" in run.data.params}
    for run in tracker.search(PRETRAIN, {"kind": "pretrain"}):
        digest = run.data.tags.get("store_digest", "")
        if digest not in wanted:
            continue
        records = [
            {"step": point.step, "metrics": {name: point.value}}
            for name in _CURVES
            for point in tracker.client.get_metric_history(run.info.run_id, name)
        ]
        counted = {name: run.data.metrics.get(f"validation/{name}_perplexity") for name in _COUNTED}
        levels = {name: math.log(value) for name, value in counted.items() if value}
        with scratch_folder() as folder:
            if picture := loss_curve(records, folder / "curve.svg", levels):
                yield f"pre-training of {digest[:12]}: loss over updates", data_address(picture, "image/svg+xml")
