"""A form checks itself: what it names is looked up, and of several faults the first of a fixed order is told."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from flows.forms.generation import AbstractsTablesParameters, FewShotParameters, GenerateParameters
from flows.forms.parameters import (
    FinetuneAllParameters,
    FinetuneParameters,
    Form,
    PipelineParameters,
    PretrainParameters,
    SweepParameters,
)
from gptcore.base.errors import InputError

WRONG = {"pretrain": {"stepz": 1}}
FAULTS: dict[type[Form], list[tuple[str, Any, str]]] = {
    PipelineParameters: [
        ("store", "", "^--store: found nothing"),
        ("datasets", "https://u:secret@h/x", "found a password"),
        ("overrides", WRONG, "pretrain.stepz is not a setting"),
        ("corpus", "{tmp}/nowhere", "nowhere"),
        ("tokenizer", "abc", "tokenizer 'abc'"),
        ("start", "abc", "pretrain 'abc'"),
        ("dask", "nonsense", "--dask nonsense: no scheduler answers"),
        ("datasets", "{tmp}", "no dataset found"),
    ],
    AbstractsTablesParameters: [
        ("store", "", "^--store: found nothing"),
        ("overrides", {"adapt": {"rate": 1}}, "adapt.rate is not a setting"),
        ("arxiv", "{tmp}", "no file of the arXiv Archive"),
        ("overrides", {"pretrain": {"steps": 3}}, "expected no pretrain beside it"),
        ("only", ["sizes"], "--only sizes"),
        ("checkpoint", "abc", "pretrain 'abc'"),
    ],
    FewShotParameters: [
        ("store", "", "^--store: found nothing"),
        ("overrides", {"family": "gpt"}, "expected gpt2"),
        ("corpus", "{tmp}/nowhere", "nowhere"),
    ],
    PretrainParameters: [
        ("store", "", "^--store: found nothing"),
        ("overrides", WRONG, "pretrain.stepz is not a setting"),
        ("shards", "abc", "shards 'abc'"),
    ],
    FinetuneParameters: [
        ("store", "", "^--store: found nothing"),
        ("checkpoint", "abc", "pretrain 'abc'"),
        ("datasets", "{tmp}", "no data for rte|no dataset"),
    ],
    FinetuneAllParameters: [  # whose settings are those of the checkpoint's family
        ("checkpoint", "abc", "pretrain 'abc'"),
        ("overrides", WRONG, "pretrain.stepz is not a setting"),
        ("datasets", "{tmp}", "no dataset found"),
    ],
    SweepParameters: [
        ("sweep", {"preset": "demo"}, "sweep"),
        ("corpus", "{tmp}/nowhere", "nowhere"),
        ("dask", "nonsense", "--dask nonsense: no scheduler answers"),
    ],
    GenerateParameters: [("store", "", "^--store: found nothing")],
}
NEEDED: dict[type[Form], dict[str, Any]] = {
    AbstractsTablesParameters: {"checkpoint": "abc"},
    FinetuneParameters: {"task": "rte", "checkpoint": ""},
    FinetuneAllParameters: {"checkpoint": ""},
    GenerateParameters: {"titles": ["A title"]},
    SweepParameters: {
        "sweep": {
            "preset": "demo",
            "objective": "validation/loss",
            "trials": 9,
            "space": {"pretrain": {"lr": {"low": 1e-4, "high": 1e-3, "scale": "log"}}},
        }
    },
}


@pytest.mark.parametrize("form", FAULTS, ids=lambda form: form.__name__)
def test_of_several_faults_the_first_is_told(form: type[Form], tmp_path: Path) -> None:
    faults = FAULTS[form]
    for first, (_, _, message) in enumerate(faults):
        given = {"store": str(tmp_path / "store"), **NEEDED.get(form, {})}
        for name, value, _ in reversed(faults[first:]):  # the first of a field's two values last
            given[name] = value.format(tmp=tmp_path) if isinstance(value, str) else value
        with pytest.raises(InputError, match=message):
            form.model_validate(given).check()
    assert not (tmp_path / "store").exists()
