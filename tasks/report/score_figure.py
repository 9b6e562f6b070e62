"""The leaderboard as one picture: a task a line, with each row's score, its interval, the best floor and the paper.

It needs no colour: shapes tell rows apart, grey and hollow marks say what is certain.
"""

from __future__ import annotations

import textwrap
from io import BytesIO
from pathlib import Path

from gptcore.nlu.registry import COLUMNS, TASK_OF_COLUMN
from tasks.report.card import data_address
from tasks.report.figures import new_canvas
from tasks.report.leaderboard import Leaderboard
from tasks.report.rows import Row, is_paper
from tasks.tracking.tracker import scratch_folder

_SHAPES = "os^DvP*X"  # of the best rows, which are as many
_INTERVAL = 1.96  # standard errors: 95 %
_NAME = 42  # characters of a row's name
_WIDTH, _DOTS = 8.0, 160  # inches, and dots each: letters are read at half of its 1,280 pixels, too
_GREY = "#999999"
_GREY_SAYS, _HOLLOW_SAYS = "grey: not told apart from the best floor", "hollow: below the best of ours for certain"


def draw_scores(board: Leaderboard, path: Path) -> str:
    """Write the picture of our best rows, of eight at most, to ``path`` (PNG).

    :return: what it shows, in words, for those who do not see it.
    """
    from matplotlib.lines import Line2D
    from PIL import Image

    rows = sorted((r for r in board.rows if r.kind == "ours"), key=lambda r: -(r.average(board.tasks) or 0.0))
    n_rows, rows, paper = len(rows), rows[: len(_SHAPES)], [row for row in board.rows if is_paper(row)]
    columns = [column for column in (*COLUMNS, *board.own_tasks) if any(_has_line(row, column) for row in rows)]
    slots = len(rows) + len(paper)  # of a line, one above the other
    canvas = new_canvas(_WIDTH, 1.1 + 0.11 * slots + len(columns) * (0.14 + 0.12 * slots))
    axes = canvas.subplots()
    floor_style = {"color": "black", "lw": 1.6, "ls": (0, (1.2, 0.7))}
    for line, column in enumerate(columns):
        if line % 2:
            axes.axhspan(line - 0.5, line + 0.5, color="#f1f1f1", zorder=0)
        for place, row in enumerate([*rows, *paper]):
            if column not in row.percent:
                continue
            score, y, color = row.percent[column], line - 0.4 + 0.8 * (place + 0.5) / slots, "black"
            if row in paper:
                axes.plot(score, y, "x", color=color, ms=7, mew=1.8)
                continue
            certain, half = row.certain.get(column, {}), _INTERVAL * row.cells[column].error
            if floor := board.floor_of(row, column):
                axes.plot([floor[0]] * 2, [y - 0.4 / slots, y + 0.4 / slots], **floor_style)
                color = _GREY if board.is_low(row, column) or "floor" not in certain else color
            axes.plot([score - half, min(score + half, 100.0)], [y, y], color=color, lw=1.6)
            inside = "white" if certain.get("level") is False else color
            axes.plot(score, y, _SHAPES[place], color=color, mfc=inside, ms=7)
    axes.set_yticks(range(len(columns)), columns, parse_math=False)
    axes.set_ylim(len(columns) - 0.5, -0.5)
    axes.set_xlabel("score x 100, with its 95 % interval", fontsize=11)
    axes.tick_params(labelsize=11)
    axes.grid(axis="x", alpha=0.4)
    dots = [
        (shape, textwrap.shorten(row.told, _NAME, placeholder=" …")) for shape, row in zip(_SHAPES, rows, strict=False)
    ]
    dots += [("x", "the paper, test rows")] * len(paper)
    handles = [Line2D([], [], color="black", marker=shape, ls="", ms=7, label=name) for shape, name in dots]
    handles.append(Line2D([], [], label="best floor, without any network", **floor_style))
    handles.append(Line2D([], [], color=_GREY, marker="o", ms=7, label=_GREY_SAYS))
    if n_rows > 1:
        handles.append(Line2D([], [], color="black", marker="o", mfc="white", ms=7, label=_HOLLOW_SAYS))
    told = canvas.legend(handles=handles, loc="outside upper left", ncols=2, frameon=False, fontsize=10)
    for text in told.get_texts():
        text.set_parse_math(False)
    canvas.savefig(drawn := BytesIO(), dpi=_DOTS)
    Image.open(drawn).convert("L").quantize(16).save(path, optimize=True)
    averages = [f"{row.told} {average:.1f}" for row in rows if (average := row.average(board.tasks)) is not None]
    beside = f" On average: {', '.join(averages)}." if averages else ""
    best = f", the best {len(rows)} of {n_rows} rows" if n_rows > len(rows) else ""
    words = f"Scores of ours{best}, a task a line, with the best floor and the paper.{beside}"
    return f"{words} {_GREY_SAYS.capitalize()}; {_HOLLOW_SAYS}."


def embedded_scores(board: Leaderboard) -> tuple[str, str]:
    """What :func:`draw_scores` says, and the address (``data:``) of its picture."""
    with scratch_folder() as folder:
        return draw_scores(board, path := folder / "scores.png"), data_address(path, "image/png")


def _has_line(row: Row, column: str) -> bool:
    """Whether a column has a line of its own; RACE's parts have RACE's, where that is there."""
    return column in row.percent and (column in row.per_task or TASK_OF_COLUMN[column] not in row.percent)
