"""Files that commands read and write, looked at before anything heavy is imported."""

from __future__ import annotations

import os
from pathlib import Path

from gptcore.base.errors import InputError, require
from gptcore.nlu.own_rows import own_example, own_table, table_format
from gptcore.nlu.registry import recorded_task
from tasks.store.store import Store


def check_answers_file(rows: str, out: str) -> None:
    """See that answers can be written.

    :param rows: the table that is answered; empty: standard input.
    :param out: empty: standard output.
    :raises InputError: one is no table's name, or ``out`` cannot be written, or is there already.
    """
    for name in filter(None, (rows, out)):
        table_format(name)
    if not out:
        return
    require(not Path(out).exists(), f"--out {out}: is there already, expected a new file")
    require_place(out, Path(out))


def check_table(store: Store, model: str, file: str) -> None:
    """See that a table's first row is one of a model's task.

    :param model: address of a `finetune` artifact.
    :raises InputError: it is none, or there is none.
    """
    spec = recorded_task(store.manifest(store.resolve(model, "finetune"))["config"])
    first = next(own_table(spec, file), None)
    if first is None:
        raise InputError(f"{file}: found no row, expected one or more")
    own_example(spec, first)


def require_place(out: str | Path, path: Path) -> None:
    """:raises InputError: nothing can be written at ``path``, which is needed for ``out``."""
    holder = path.absolute().parent
    if "://" in str(out) or path.is_dir() or not holder.is_dir() or not os.access(holder, os.W_OK):
        raise InputError(f"--out {out}: found no folder at {holder} that can be written, expected one")
