"""The file of a user's own task, written after what its rows look like."""

from __future__ import annotations

import argparse
import codecs
import io
import sys
from contextlib import redirect_stdout
from pathlib import Path

from flows.cli.datasets import check_task
from flows.cli.files import require_new, require_place
from flows.forms.readers import listed
from flows.servers.environment import absolute
from gptcore.base.errors import InputError, require
from gptcore.base.files import write_bytes_atomic
from gptcore.base.filesystems import exists, file_system, misspelt
from gptcore.nlu.columns import Said
from gptcore.nlu.guess import Fields, Unclear, guess_task, task_text
from gptcore.nlu.own_task import is_task_file
from gptcore.nlu.spec import Dialect

_NOTHING = Said()


def said_of(options: argparse.Namespace) -> Said:
    """What the options of the command say of a task.

    :raises InputError: an encoding that nobody knows, or more than one character between cells.
    """
    delimiter = options.delimiter.replace("\\t", "\t")
    require(len(delimiter) < 2, f"--delimiter: found {delimiter!r}, expected one character")
    try:
        codecs.lookup(options.encoding or "utf-8")
    except LookupError:
        raise InputError(f"--encoding: found {options.encoding!r}, expected the name of one, cp1252 say") from None
    dialect, texts = Dialect(delimiter, options.encoding), listed(options.text)
    return Said(options.label, listed(options.labels), options.form, texts, options.graded, dialect)


def init_task(
    rows: str, said: Said = _NOTHING, name: str = "", out: str = "", force: bool = False, ask: bool = False
) -> str:
    """Write the file, and print it with what ``gptmill datasets check`` says of it; whole and right, or not at all.

    :param rows: the address of the training rows.
    :param said: what the user says of them.
    :param ask: whether a person is there, who is asked for what the rows do not tell.
    :param out: the file to write; empty: beside the rows, or here where these are not on this machine. With
        ``force`` one that is there is replaced, once the new one is right.
    :return: the file's address.
    :raises InputError: no rows there, no new TOML file can be written, or as :func:`guess_task` and :func:`check_task`.
    """
    rows = rows.rstrip("/")
    require(exists(*file_system(rows)), f"{rows}: found nothing there, expected a file of rows{misspelt(rows)}")
    folder, _, file = rows.rpartition("/")
    path = Path(out) if out else Path("" if "://" in rows else folder, f"{file.partition('.')[0]}.toml")
    require_new(path, force)
    require(is_task_file(str(path)), f"--out {path}: found another ending, expected a .toml file")
    require_place(out or path, path)
    beside = "://" not in rows and Path(folder).absolute() == path.parent.absolute()
    text = task_text(_guessed(rows, said, name, "" if beside else f"{absolute(folder or '.')}/", ask))
    former = path.read_bytes() if path.is_file() else None
    write_bytes_atomic(path, text.encode("utf-8"))
    found = io.StringIO()
    try:
        with redirect_stdout(found):
            check_task(str(path), "")
    except BaseException:
        path.unlink() if former is None else write_bytes_atomic(path, former)
        raise
    print(f"{path}:\n\n{text}\n{found.getvalue()}", end="", flush=True)
    return str(path)


def _guessed(rows: str, said: Said, name: str, folder: str, ask: bool) -> Fields:
    """The fields of the task's file; what only a person knows is asked, where one is there."""
    while True:
        try:
            return guess_task(rows, said, name, folder)
        except Unclear as error:
            if not ask:
                raise
            print(f"{error}\n{error.option} ({' or '.join(error.answers)}): ", end="", file=sys.stderr, flush=True)
            answer = sys.stdin.readline().strip()
            if not answer:
                raise
            is_column = error.option == "--label"
            said = said._replace(label=answer) if is_column else said._replace(labels=listed(answer))
