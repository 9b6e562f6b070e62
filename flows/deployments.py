"""The flows that a Prefect server offers, each with the form it shows."""

from __future__ import annotations

from typing import Any

from pydantic import BaseModel

from flows.analysis import layers, table5, tables, zero_shot_curves
from flows.finetune import finetune, finetune_all
from flows.leaderboard import leaderboard
from flows.parameters import (
    AnalysisParameters,
    FinetuneAllParameters,
    FinetuneParameters,
    PipelineParameters,
    PretrainParameters,
)
from flows.pipeline import pipeline
from flows.pretrain import pretrain

FLOWS: list[tuple[Any, type[BaseModel] | None]] = [
    (pipeline, PipelineParameters),
    (pretrain, PretrainParameters),
    (finetune, FinetuneParameters),
    (finetune_all, FinetuneAllParameters),
    (tables, AnalysisParameters),
    (table5, AnalysisParameters),
    (layers, AnalysisParameters),
    (zero_shot_curves, AnalysisParameters),
    (leaderboard, None),
]
