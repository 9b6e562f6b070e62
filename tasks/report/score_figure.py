"""The leaderboard as one picture: a task a line, with each row's score, its interval, the best floor and the paper.

It needs no colour: shapes tell rows apart, grey and hollow marks say what is certain.
"""

from __future__ import annotations

import math
import textwrap
from io import BytesIO
from pathlib import Path
from typing import Any

from gptcore.nlu.registry import COLUMNS, TASK_OF_COLUMN
from tasks.report.card import data_address
from tasks.report.figures import new_canvas
from tasks.report.leaderboard import Leaderboard
from tasks.report.rows import is_paper, one_decimal

PICTURE = "scores.png"
_SHAPES = "os^DvP*X"  # of the best rows, which are as many
_NAME = 42  # characters of a row's name
_WIDTH, _DOTS = 8.0, 160  # inches, and dots each: letters are read at half of its 1,280 pixels, too
_GREY = "#999999"
_GREY_SAYS, _HOLLOW_SAYS = "grey: not told apart from the best floor", "hollow: below the best of ours for certain"


def draw_scores(board: Leaderboard, folder: Path) -> tuple[str, str]:
    """Write the picture of our best rows, of eight at most, as :data:`PICTURE` into a folder.

    :return: what it shows, in words, and its address (``data:``).
    """
    from matplotlib.lines import Line2D
    from PIL import Image

    ours = sorted((r for r in board.rows if r.kind == "ours"), key=lambda r: -(r.average(board.tasks) or 0.0))
    shown = ours[: len(_SHAPES)]
    rows = [*shown, *(row for row in board.rows if is_paper(row))]
    parts = {c for r in shown for c in r.percent if TASK_OF_COLUMN.get(c, c) != c and TASK_OF_COLUMN[c] in r.percent}
    there = {column for row in shown for column in row.percent} - parts  # RACE's have its own line
    columns = [column for column in (*COLUMNS, *board.own_tasks) if column in there]
    canvas = new_canvas(_WIDTH, 1.1 + 0.11 * len(rows) + len(columns) * (0.14 + 0.12 * len(rows)))
    axes = canvas.subplots()
    floor_style: dict[str, Any] = {"color": "black", "lw": 1.6, "ls": (0, (1.2, 0.7))}
    handles = []
    for place, row in enumerate(rows):
        name, shape = textwrap.shorten(row.told, _NAME, placeholder=" …"), _SHAPES[place] if row in shown else "x"
        handles.append(Line2D([], [], color="black", marker=shape, ls="", label=name if row in shown else "the paper"))
        for line, column in enumerate(columns):
            if (score := row.percent.get(column)) is None:
                continue
            y, color, certain = line - 0.4 + 0.8 * (place + 0.5) / len(rows), "black", row.certain.get(column, {})
            if row in shown and (floor := board.floor_of(row, column)):
                axes.plot([floor.percent[column]] * 2, [y - 0.4 / len(rows), y + 0.4 / len(rows)], **floor_style)
                color = _GREY if board.is_low(row, column) or "floor" not in certain else color
            if cell := row.cells.get(column):
                half = 1.96 * math.hypot(cell.stderr or 0.0, cell.deviation / math.sqrt(cell.seeds))  # 95 %
                axes.plot([score - half, min(score + half, 100.0)], [y, y], color=color, lw=1.6)
            axes.plot(score, y, shape, color=color, mfc="white" if certain.get("level") is False else color)
    for line in range(1, len(columns), 2):
        axes.axhspan(line - 0.5, line + 0.5, color="#f1f1f1", zorder=0)
    axes.set_yticks(range(len(columns)), columns, parse_math=False)
    axes.set_ylim(len(columns) - 0.5, -0.5)
    axes.set_xlabel("score x 100, with its 95 % interval", fontsize=11)
    axes.tick_params(labelsize=11)
    axes.grid(axis="x", alpha=0.4)
    handles += [
        Line2D([], [], label="best floor, without any network", **floor_style),
        Line2D([], [], color=_GREY, marker="o", label=_GREY_SAYS),
    ]
    handles.append(Line2D([], [], color="black", marker="o", mfc="white", label=_HOLLOW_SAYS))
    told = canvas.legend(handles=handles, loc="outside upper left", ncols=2, frameon=False, fontsize=10)
    for text in told.get_texts():
        text.set_parse_math(False)
    canvas.savefig(drawn := BytesIO(), dpi=_DOTS)
    Image.open(drawn).convert("L").quantize(16).save(folder / PICTURE, optimize=True)
    averages = [f"{row.told} {one_decimal(row.average(board.tasks))}" for row in shown]
    words = f"{len(shown)} of {len(ours)} rows, a task a line, on average: {', '.join(averages)}."
    return f"{words} {_GREY_SAYS.capitalize()}; {_HOLLOW_SAYS}.", data_address(folder / PICTURE, "image/png")
