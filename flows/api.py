"""What programs call in place of commands: ``from flows.api import finetune, predict, score, leaderboard``.

Each does what the command of its name does, with the same defaults, and gives tables of pandas. No server has to run:
where none is set, a Prefect server of this process' own begins with the first fine-tune and ends with the process.
Call them from its main thread.
"""

from __future__ import annotations

import io
from collections.abc import Iterable, Mapping
from typing import TYPE_CHECKING, Any

from flows.servers.environment import default_store, prepare, require_servers
from gptcore.base.errors import require

if TYPE_CHECKING:
    from pandas import DataFrame

    from tasks.report.leaderboard import Leaderboard
    from tasks.store.store import Store


def finetune(task: str, checkpoint: str = "latest", **fields: Any) -> DataFrame:
    """Fine-tune a checkpoint on a task; the result beside its floors and the published rows, as :func:`leaderboard`.

    :param task: a task's name, or the file of one's own.
    :param checkpoint: a model by any of its names, or a folder of Hugging Face's.
    :param fields: what the form has beside these (:class:`flows.forms.parameters.FinetuneParameters`): ``datasets``,
        ``store``, ``seeds``, ``epochs``, ``overrides`` ...
    :raises InputError: something is not there, or does not fit.
    """
    prepare()
    from flows.cli.run import validated
    from flows.finetune import finetune as flow
    from flows.forms.parameters import FinetuneParameters
    from flows.servers.temporary_server import begin_server, ensure_server

    given = {"task": str(task), "checkpoint": str(checkpoint), "store": default_store()[0], **fields}
    form = validated(FinetuneParameters, given)
    form.check()
    require_servers()
    begin_server()
    ensure_server()
    return _frame(flow(form))


def predict(
    task: str, rows: DataFrame | Iterable[Mapping[str, Any]], model: str = "best", store: str = ""
) -> DataFrame:
    """The answers of a fine-tuned model, a row each in the rows' order: label and probabilities, or score.

    :param rows: their columns are named as the task's fields.
    :param model: of the task, by any of its names.
    :param store: where models are; empty: as commands have it.
    :raises InputError: no such model, or a row without a field.
    """
    prepare()
    import pandas as pd

    from flows import inference
    from flows.forms.references import named_task

    require(not isinstance(rows, str | Mapping), "rows: found one alone, expected a data frame, or a list of mappings")
    given = pd.DataFrame(rows, dtype=object)  # of no number's type, which an id beside a missing one would take
    lines = given.to_json(orient="records", lines=True, date_format="iso", double_precision=15).encode().splitlines()
    found = _store(store)
    table = []
    for answer in inference.predict(found, named_task(found, str(task)), model, lines, name="rows"):
        shares = {f"probability {label}": share for label, share in answer.pop("probabilities", {}).items()}
        table.append({**answer, **shares})
    return pd.DataFrame(table, index=given.index).drop(columns="line", errors="ignore")


def score(task: str, file: str, model: str = "best", store: str = "") -> dict[str, float]:
    """The metrics of a fine-tuned model on the labelled rows of a file, per cent, and how many "rows" it has.

    :param file: a table in any format that commands read, its columns named as the task's; any fsspec URL.
    :param model, store: as in :func:`predict`.
    :raises InputError: no such model or file, or a broken row.
    """
    prepare()
    from flows import inference
    from flows.forms.references import named_task

    found = _store(store)
    return inference.score_table(found, named_task(found, str(task)), model, file)


def leaderboard() -> DataFrame:
    """Every row of the leaderboard, the published ones too: scores per cent, errors, what they were scored on."""
    prepare()
    from tasks.report.suites import kept_leaderboard

    return _frame(kept_leaderboard()[0])


def _frame(board: Leaderboard) -> DataFrame:
    import pandas as pd

    return pd.read_csv(io.StringIO(board.render("csv")))


def _store(url: str) -> Store:
    from tasks.store.store import Store

    return Store(url or default_store()[0])
