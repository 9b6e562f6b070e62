"""The zip that GLUE's test server scores: one file of answers a test set, from one fine-tuned model a task.

The server (gluebenchmark.com; Wang et al. 2019) keeps the labels of nine tasks' test rows and of a diagnostic set
(AX). Every file has the header ``index``, ``prediction`` and one line a row, counted from 0 in each file by itself;
a zip without some file, or a file without some row, is refused. Nobody fine-tunes on the diagnostic set, and WNLI is
none of the paper's tasks: the MNLI model answers both. On WNLI, whose pairs are entailed or not, whatever MNLI calls
neutral or contradictory is not.

All test files are read and checked before the first model is loaded, since the answers can take hours.
"""

from __future__ import annotations

import io
import zipfile
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any

from gptcore.base.errors import InputError, require
from gptcore.base.files import write_bytes_atomic
from gptcore.base.tables import read_table
from gptcore.base.types import quiet
from gptcore.nlu.forms import form_of
from gptcore.nlu.readers import has_test_rows, iterate_test
from gptcore.nlu.registry import TaskSpec, task_spec

if TYPE_CHECKING:
    from gptcore.evaluation.predict import TaskModel
    from gptcore.text.tokenizer import Tokenizer

Progress = Callable[[str, int, int], None]
"""Called after every row with (file of the zip, rows answered, rows in all)."""

_TIMESTAMP = (1980, 1, 1, 0, 0, 0)  # the first that a zip can name: equal answers, equal bytes


@dataclass(frozen=True)
class SubmissionFile:
    """One file of the zip, and the test file that it answers."""

    name: str
    """In the zip."""
    task: str
    """Whose model answers, whose text columns are read."""
    path: str
    """The path of the test file, relative to the folder of datasets."""
    rows: int
    """Rows of the published test file; the server expects as many answers."""
    index: str = "index"
    """The column that counts the rows."""
    words: Mapping[str, str] = field(default_factory=dict)
    """Label of the task -> what the server calls it, where that differs."""


SUBMISSION = tuple(SubmissionFile(**file) for file in read_table(__file__, "submission.toml")["files"])
"""What the server expects, with its test sets' published sizes (Table 1 of the GLUE paper; version 2 of QNLI)."""

GLUE_TASKS: tuple[str, ...] = tuple(dict.fromkeys(file.task for file in SUBMISSION))
"""Tasks whose models are needed."""


def files_of(tasks: Sequence[str] = ()) -> tuple[SubmissionFile, ...]:
    """The files that the models of ``tasks`` answer; empty: all.

    :raises InputError: a task that is not one of GLUE's.
    """
    for task in tasks:
        if task not in GLUE_TASKS:
            raise InputError(f"tasks: found {task!r}, expected some of {', '.join(GLUE_TASKS)} (those of GLUE)")
    return tuple(file for file in SUBMISSION if not tasks or file.task in tasks)


def glue_submission(
    models: Mapping[str, Path],
    tokenizer: Tokenizer,
    datasets_url: str,
    out: Path,
    tasks: Sequence[str] = (),
    progress: Progress = quiet,
) -> dict[str, Any]:
    """Answer the test files and write the zip, atomically and with the same bytes for the same answers.

    Of a complete submission every file must be there with its published number of rows. A partial one is a rehearsal,
    as the server refuses it in any case: test files of another size (a generated world's) are answered, absent ones
    left out, and both named in the notes.

    :param models: task -> the folder of its fine-tuned model; all of them share the tokenizer.
    :param tasks: only the files that these tasks' models answer. Empty: all, what the server accepts.
    :return: "files" (name -> "rows", "published"), "complete" (whether the server accepts it) and "notes" (why not).
    :raises InputError: a model or file is missing, a test file is broken or not of its published size (see above); or
        as :class:`gptcore.evaluation.predict.TaskModel`.
    """
    from gptcore.evaluation.predict import TaskModel  # torch, which the table above does without

    files = files_of(tasks)
    if out.is_dir() or not out.parent.is_dir():
        raise InputError(f"{out}: found {'a folder' if out.is_dir() else 'no folder to write it in'}, expected a file")
    if missing := [task for task in dict.fromkeys(file.task for file in files) if task not in models]:
        raise InputError(f"models: found none for {', '.join(missing)}, expected one for each task of GLUE")
    counts, notes = _check(files, datasets_url)
    files = tuple(file for file in files if file.name in counts)
    contents: dict[str, bytes] = {}
    for task in dict.fromkeys(file.task for file in files):
        model = TaskModel(models[task], tokenizer)
        if model.spec.name != task:
            raise InputError(f"{models[task]}: found a model of the task {model.spec.name}, expected one of {task}")
        for file in (file for file in files if file.task == task):
            contents[file.name] = _answer(file, model, datasets_url, counts[file.name], progress)
    write_bytes_atomic(out, _zip({file.name: contents[file.name] for file in files}))
    return {
        "files": {file.name: {"rows": counts[file.name], "published": file.rows} for file in files},
        "complete": not notes,
        "notes": notes,
    }


def _check(files: Sequence[SubmissionFile], datasets_url: str) -> tuple[dict[str, int], list[str]]:
    """Rows of every test file, each read once to its end, and what the server would object to."""
    left_out = [file.name for file in SUBMISSION if file not in files]
    notes = (
        [f"incomplete: without {', '.join(left_out)}; the server refuses a zip that lacks a file"] if left_out else []
    )
    counts = {}
    for file in files:
        if left_out and not has_test_rows(datasets_url, file.path):
            notes.append(f"{datasets_url.rstrip('/')}/{file.path}: found nothing there; {file.name} is left out")
            continue
        rows = sum(1 for _ in iterate_test(task_spec(file.task), datasets_url, file.path, file.index))
        where = f"{datasets_url.rstrip('/')}/{file.path}: found {rows} rows, expected {file.rows}"
        if not rows or (rows != file.rows and not left_out):
            raise InputError(f"{where}, the published test set")
        if rows != file.rows:
            notes.append(f"{where}; the server refuses {file.name}")
        counts[file.name] = rows
    require(counts, f"{datasets_url}: found none of {', '.join(file.path for file in files)}, expected them")
    return counts, notes


def _answer(file: SubmissionFile, model: TaskModel, datasets_url: str, rows: int, progress: Progress) -> bytes:
    """One file's text; of its rows only the answers are kept."""
    lines = ["index\tprediction\n"]
    examples = iterate_test(model.spec, datasets_url, file.path, file.index)
    predict = form_of(model.spec).predict
    for number, logits in enumerate(model.logits(examples)):
        lines.append(f"{number}\t{_spelled(file, model.spec, predict(model.spec, logits[None])[0])}\n")
        progress(file.name, number + 1, rows)
    return "".join(lines).encode("ascii")


def _spelled(file: SubmissionFile, spec: TaskSpec, value: float) -> str:
    """An answer as the server spells it: a label's word, or a score with three decimals."""
    if spec.score_range:
        return f"{value:.3f}"
    label = spec.labels[int(value)]
    return file.words.get(label, label)


def _zip(contents: Mapping[str, bytes]) -> bytes:
    buffer = io.BytesIO()
    with zipfile.ZipFile(buffer, "w") as archive:
        for name, data in contents.items():
            info = zipfile.ZipInfo(name, _TIMESTAMP)
            info.compress_type = zipfile.ZIP_DEFLATED
            info.create_system, info.external_attr = 3, 0o644 << 16  # Unix, readable once unpacked
            archive.writestr(info, data)
    return buffer.getvalue()
