"""What MLflow loads: tables by the data's names of columns or by the fields' own, and lists of answers."""

from __future__ import annotations

import json
from pathlib import Path

import mlflow
import numpy as np
import pandas as pd
import pytest

from flows.inference import predict
from gptcore.nlu.registry import task_spec
from tasks.report.entries import task_interface
from tasks.tracking.pyfunc import write_mlmodel
from tests.flows.test_serving import Shelf


@pytest.fixture(scope="module")
def shelf(tmp_path_factory: pytest.TempPathFactory) -> Shelf:
    return Shelf(tmp_path_factory.mktemp("shelf") / "store")


@pytest.mark.parametrize(
    ("task", "rows"),
    [
        ("rte", [{"sentence1": "the cat sat", "sentence2": "it sat"}, {"premise": "a bird", "hypothesis": "it sat"}]),
        ("mrpc", [{"text1": "the cat sat", "text2": "it sat"}]),
        ("sst2", [{"sentence": "the cat sat"}, {"text": "the cat sat"}]),
        ("race", [{"document": "a cat sat .", "question": "who sat ?", "answers": ["a cat", "a mat", "row", "no"]}]),
    ],
)
def test_columns_may_have_any_name_that_predict_takes(shelf: Shelf, tmp_path: Path, task: str, rows: list) -> None:
    write_mlmodel(tmp_path / "model", shelf.finetune(task, shelf.checkpoint), task_interface(task_spec(task)))
    loaded = mlflow.pyfunc.load_model(str(tmp_path / "model"))
    for row in rows:
        (expected,) = predict(shelf.store, task, "latest", [json.dumps(row).encode()])
        found = loaded.predict(pd.DataFrame([row])).iloc[0]
        assert found["label"] == expected["label"]
        for label, share in expected["probabilities"].items():
            np.testing.assert_allclose(found[f"probability {label}"], share, atol=1e-6)
    with pytest.raises(Exception, match=r"the table: found none of the model's columns, expected "):
        loaded.predict(pd.DataFrame([{"other": "a"}]))
