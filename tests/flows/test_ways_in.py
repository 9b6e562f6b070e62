"""Each small input, and what is asked about it, ends alike in `datasets check`, fine-tune, predict, serve, pyfunc."""

from __future__ import annotations

import io
import json
from collections.abc import Callable
from functools import partial
from pathlib import Path
from shutil import copytree
from types import SimpleNamespace
from typing import Any

import mlflow
import pandas as pd
import pytest
from mlflow.exceptions import MlflowException
from starlette.testclient import TestClient

from flows.cli.main import main
from flows.serving.answering import Predictions
from flows.serving.model_server import application
from gptcore.base.errors import InputError
from gptcore.evaluation.predict import TaskModel
from gptcore.nlu.encoded import encode_task
from gptcore.nlu.forms import form_of
from gptcore.nlu.own_task import read_own_task
from gptcore.nlu.readers import iterate
from tasks.report.entries import task_interface
from tasks.tracking.pyfunc import write_mlmodel
from tests.flows.test_public_inputs import Case, cases, copied, write_task
from tests.flows.test_serving import Shelf
from tests.gptcore.tiny_tasks import finetune_job, finetuned

Rows = list[dict[str, Any]]
Ask = Callable[[Rows], Any]
"""Answers as tables have them, or the words that refuse a row, without those that name the way."""
QUICK = {"epochs": 1, "batch_size": 4, "precision": "float32"}


@pytest.fixture(scope="module")
def shelf(tmp_path_factory: pytest.TempPathFactory) -> Shelf:
    return Shelf(tmp_path_factory.mktemp("ways") / "store")


@pytest.fixture
def ways(shelf: Shelf, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]) -> Any:
    """Fine-tunes on a task, by its file, and gives each way to ask the model."""

    def found(url: str) -> list[Ask]:
        spec, job, store = read_own_task(url).spec, tmp_path / "job", shelf.store
        encode_task(spec, "", shelf.words, tmp_path / "rows")
        finetuned(finetune_job(spec.name, store.local(shelf.checkpoint) / "model", tmp_path / "rows", job, QUICK))
        inputs = {"checkpoint": shelf.checkpoint}
        put = lambda out: copytree(job / "model", out / "model")  # noqa: E731
        model = shelf._put("finetune", {"task": spec.name}, inputs, put)
        write_mlmodel(tmp_path / "mlflow", model, task_interface(spec))
        loaded = mlflow.pyfunc.load_model(str(tmp_path / "mlflow"))
        service = application(Predictions(TaskModel(job / "model", shelf.words)), {})
        client = TestClient(service, base_url="http://127.0.0.1", headers={"content-type": "application/json"})

        def cells(answers: Rows) -> Rows:
            plain = [
                {name: cell for name, cell in answer.items() if name not in ("line", "note")} for answer in answers
            ]
            notes = [{"note": answer["note"]} if "note" in answer else {} for answer in answers]
            return [form_of(spec).table_cells(spec, cell) | note for cell, note in zip(plain, notes, strict=True)]

        def predict(rows: Rows) -> Any:
            text = "\ufeff" + "".join(json.dumps(row) + "\r\n" for row in rows) + " \xa0\n"
            monkeypatch.setattr("sys.stdin", SimpleNamespace(buffer=io.BytesIO(text.encode())))
            capfd.readouterr()
            code = main(["predict", spec.name, "--model", model.short, "--store", store.url])
            out, err = capfd.readouterr()
            assert (code, err.count("\n")) in ((2, 1), (0, int("rows: " in err)))
            return err.partition("input, line ")[2].strip() or cells(list(map(json.loads, out.splitlines())))

        def serve(rows: Rows) -> Any:
            answer = client.post("/predict", content=f"\ufeff{json.dumps(rows)}\n".encode())
            assert answer.status_code == (200 if isinstance(answer.json(), list) else 400)
            return cells(answer.json()) if answer.is_success else answer.json()["error"].partition("row ")[2]

        def table(kind: str, rows: Rows) -> Any:
            try:
                told = loaded.predict(pd.DataFrame(rows).astype(kind)).to_dict("records")
                told = [{name: None if cell != cell else cell for name, cell in row.items()} for row in told]
                return [{name: cell for name, cell in row.items() if (name, cell) != ("note", "")} for row in told]
            except MlflowException as error:
                return error.message.partition("row ")[2]

        return [predict, serve, *(partial(table, kind) for kind in ("object", "string", "string[pyarrow]"))]

    return found


@pytest.mark.parametrize("case", cases(), ids=lambda case: case.name)
def test_an_input_ends_alike_in_every_way(
    case: Case, ways: Callable[[str], list[Ask]], shelf: Shelf, tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    url = copied(case, tmp_path)
    if main(["datasets", "check", url]) == 2:
        said = capfd.readouterr()
        assert main(["finetune", url, "--checkpoint", shelf.checkpoint.short, "--store", shelf.store.url]) == 2
        assert (capfd.readouterr(), shelf.store.list("dataset")) == (said, [])
    elif "so a fine-tune is refused" in capfd.readouterr().out:
        with pytest.raises(InputError, match="as the label of every row"):
            ways(url)
    else:
        spec, asked = read_own_task(url).spec, ways(url)
        names = (*spec.text_columns, *spec.choices)
        rows = [dict(zip(names, (*row.fields, *row.choices), strict=True)) for row in iterate(spec, "", "dev")]
        rows = [{name: f"\xa0{text[:40_000]}" for name, text in row.items()} for row in rows]
        first, *others = (ask(rows) for ask in asked)
        assert len(first) == len(rows)
        assert others == [first] * len(others)
        assert not spec.labels or {row["label"] for row in first} <= set(spec.labels)


@pytest.mark.parametrize("text", [None, "", "\xa0"])
def test_a_row_without_a_text_is_blank_in_the_same_words(
    text: str | None, ways: Callable[[str], list[Ask]], tmp_path: Path
) -> None:
    url = write_task(tmp_path / "own", "jsonl", [{"text": "a", "label": 1}, {"text": "b", "label": 0.0}])
    first, *others = (ask([{"text": "a"}, {"text": text}]) for ask in ways(url))
    assert others == [first] * len(others)
    assert first[1].pop("note") == f"column 'text': found {text or ''!r}, expected text that is not empty"
    assert {*first[1].values()} == {None} != {*first[0].values()}
    assert first[1].keys() == first[0].keys()


@pytest.mark.parametrize("text", [12, 1.0, True, ["a"]])
def test_a_row_is_refused_in_the_same_words(text: Any, ways: Callable[[str], list[Ask]], tmp_path: Path) -> None:
    url = write_task(tmp_path / "own", "jsonl", [{"text": "a", "label": 1}, {"text": "b", "label": 0.0}])
    words = f"2, column 'text': found {text!r}, expected text that is not empty"
    asked = ways(url)[:3]  # other columns hold only texts
    assert {ask([{"text": "a"}, {"text": text}]) for ask in asked} == {words}
