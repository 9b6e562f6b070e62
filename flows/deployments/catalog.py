"""The flows that a Prefect server offers, each with its work pool and the form it shows."""

from __future__ import annotations

from dataclasses import dataclass
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
from flows.pools import CPU, GPU
from flows.pretrain import pretrain


@dataclass(frozen=True)
class Offer:
    """One deployment: a flow, where it runs, what it asks."""

    flow: Any
    pool: str
    form: type[BaseModel] | None = None


OFFERS = [
    Offer(pipeline, CPU, PipelineParameters),
    Offer(pretrain, GPU, PretrainParameters),
    Offer(finetune, GPU, FinetuneParameters),
    Offer(finetune_all, CPU, FinetuneAllParameters),
    Offer(tables, CPU, AnalysisParameters),
    Offer(table5, CPU, AnalysisParameters),
    Offer(layers, CPU, AnalysisParameters),
    Offer(zero_shot_curves, CPU, AnalysisParameters),
    Offer(leaderboard, CPU),
]
