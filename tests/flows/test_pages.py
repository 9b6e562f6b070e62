"""Runs are called by what they do."""

from __future__ import annotations

from typing import Any

import pytest

from flows.forms.generation import AbstractsTablesParameters, FewShotParameters
from flows.forms.parameters import (
    AnalysisParameters,
    FinetuneAllParameters,
    FinetuneParameters,
    PipelineParameters,
    PretrainParameters,
    SweepParameters,
)
from flows.forms.run_names import run_name


@pytest.mark.parametrize(
    ("flow", "form", "name"),
    [
        ("pipeline", PipelineParameters(), "pipeline demo"),
        ("pipeline", PipelineParameters(preset="small", seeds=3, tasks=["rte"]), "pipeline small, rte, 3 seeds"),
        ("pretrain", PretrainParameters(preset="demo", store="s3://x/y"), "pretrain demo 1,400 updates"),
        ("pretrain", PretrainParameters(preset="paper"), "pretrain paper 100 epochs"),
        ("finetune", FinetuneParameters(task="rte"), "finetune rte"),
        ("finetune", FinetuneParameters(task="rte", lr=5e-4, seeds=1), "finetune rte, 1 seed, lr 0.0005"),
        ("finetune", FinetuneParameters(task="rte", pretrained=False), "finetune rte, from random weights"),
        (
            "finetune-all",
            FinetuneAllParameters(overrides={"finetune": {"lr": 1e-4}}),
            "finetune all demo, finetune.lr 0.0001",
        ),
        ("sweep", SweepParameters(sweep={"preset": "small", "objective": "dev/score"}), "sweep small by dev/score"),
        (
            "abstracts-tables",
            AbstractsTablesParameters(only=["table4", "sizes"]),
            "abstracts tables demo, only table4+sizes",
        ),
        ("few-shot", FewShotParameters(shots=[0, 2]), "few shot demo, shots 0+2"),
        ("analysis-table5", AnalysisParameters(jobs=2), "analysis table5 demo"),
        ("analysis-zero-shot", AnalysisParameters(max_rows=20), "analysis zero-shot demo, max rows 20"),
        (
            "finetune",
            FinetuneParameters(task="rte", lr=1e-3, seeds=1, epochs=1, batch_size=8, lm_coef=0.0),
            "finetune rte, 1 seed, lr 0.001, batch size 8, epochs 1, ...",
        ),
    ],
)
def test_a_run_is_called_by_what_it_does(flow: str, form: Any, name: str) -> None:
    assert run_name(flow, form) == name
