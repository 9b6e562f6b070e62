"""The file of a user's own task, written after what its rows look like."""

from __future__ import annotations

import io
from contextlib import redirect_stdout
from pathlib import Path

from flows.cli.datasets import check_task
from flows.cli.files import require_new, require_place
from flows.forms.readers import listed
from flows.servers.environment import absolute
from gptcore.base.errors import require
from gptcore.base.files import write_bytes_atomic
from gptcore.base.filesystems import exists, file_system, misspelt
from gptcore.nlu.guess import guess_task, task_text
from gptcore.nlu.own_task import is_task_file


def init_task(rows: str, label: str, labels: str, name: str, out: str, force: bool = False) -> str:
    """Write the file, and print it with what ``gptmill datasets check`` says of it; whole and right, or not at all.

    :param rows: the address of the training rows.
    :param label: the column of the label; empty: it is told by the rows, as are the labels, comma-separated.
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
    text = task_text(guess_task(rows, label, listed(labels), name, "" if beside else f"{absolute(folder or '.')}/"))
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
