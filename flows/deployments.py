"""The flows that a Prefect server offers, each with the form it shows."""

from __future__ import annotations

from typing import Any

from pydantic import BaseModel

from flows.finetune import finetune, finetune_all
from flows.leaderboard import leaderboard
from flows.parameters import FinetuneAllParameters, FinetuneParameters, PipelineParameters, PretrainParameters
from flows.pipeline import pipeline
from flows.pretrain import pretrain

FLOWS: list[tuple[Any, type[BaseModel] | None]] = [
    (pipeline, PipelineParameters),
    (pretrain, PretrainParameters),
    (finetune, FinetuneParameters),
    (finetune_all, FinetuneAllParameters),
    (leaderboard, None),
]
