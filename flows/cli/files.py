"""Files that commands read and write, looked at before anything heavy is imported."""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from tempfile import TemporaryDirectory

from gptcore.base.errors import InputError, require
from gptcore.nlu.own_rows import asked_about, own_table, table_format
from gptcore.nlu.registry import recorded_task
from tasks.store.store import Store


def check_answers_file(rows: str, out: str, force: bool) -> None:
    """Check that answers can be written.

    :param rows: the table that is answered; empty: standard input.
    :param out: empty: standard output.
    :raises InputError: one is no table's name, or ``out`` cannot be written, or is there already without ``force``.
    """
    if rows:
        table_format(rows)
    if not out:
        return
    table_format(out, written=True)
    require_new(Path(out), force)
    require_place(out, Path(out))


def check_table(store: Store, model: str, file: str, skip: bool = False) -> None:
    """Check that a table's first row is one of a model's task, or one that is answered blank.

    :param model: address of a `finetune` artifact.
    :param skip: whether any broken row is.
    :raises InputError: it is none, or there is none.
    """
    spec = recorded_task(store.manifest(store.resolve(model, "finetune"))["config"])
    first = next(own_table(spec, file, skip), None)
    if first is None:
        raise InputError(f"{file}: found no row, expected one or more")
    asked_about(spec, first, skip)


def require_new(path: Path, force: bool, what: str = "file") -> None:
    """:raises InputError: something is there already, and is not to be replaced."""
    new = force or not path.exists()
    require(new, f"--out {path}: is there already, expected a new {what}, or --force to replace it")


@contextmanager
def exported_to(folder: Path, force: bool) -> Iterator[Path]:
    """Where an exported model is written; whole, it takes the place of ``folder``, and of an earlier export there.

    :raises InputError: nothing can be written there, or ``folder`` is there and is not to be replaced, or is no export.
    """
    require_new(folder, force and folder.is_dir(), "folder")
    require_place(folder, next(holder for holder in folder.absolute().parents if holder.exists()) / f".{folder.name}")
    folder.parent.mkdir(parents=True, exist_ok=True)
    with TemporaryDirectory(prefix=f".{folder.name}.", dir=folder.parent) as aside:
        yield (made := Path(aside) / "made")
        if folder.exists():
            strange = {path.name for path in folder.iterdir()} - {path.name for path in made.iterdir()}
            require(not strange, f"--out {folder}: found {', '.join(strange)} there, expected an exported model alone")
            folder.rename(Path(aside) / "former")
        made.rename(folder)


def require_place(out: str | Path, path: Path) -> None:
    """:raises InputError: nothing can be written at ``path``, which is needed for ``out``."""
    holder = path.absolute().parent
    if "://" in str(out) or path.is_dir() or not holder.is_dir() or not os.access(holder, os.W_OK):
        raise InputError(f"--out {out}: found no folder at {holder} that can be written, expected one")
