"""The flows that a Prefect server offers, each with its work pool and the form it shows."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from prefect.utilities.callables import parameter_schema
from pydantic import BaseModel

from flows.abstracts import abstracts, abstracts_tables, generate
from flows.analysis.budgets import objectives
from flows.analysis.curves import learning, zero_shot_curves
from flows.analysis.encoder_objectives import replaced, sentences
from flows.analysis.entities import entities
from flows.analysis.networks import families, sharing, sizes
from flows.analysis.overlap import overlap
from flows.analysis.paper import layers, table5, tables
from flows.analysis.students import distillation, students
from flows.distil import distil
from flows.few_shot import few_shot
from flows.finetune import finetune, finetune_all
from flows.forms.generation import AbstractsParameters, AbstractsTablesParameters, FewShotParameters, GenerateParameters
from flows.forms.knowledge import KnowledgeParameters, ReasonParameters
from flows.forms.parameters import (
    AnalysisParameters,
    DistillationParameters,
    DistilParameters,
    FinetuneAllParameters,
    FinetuneParameters,
    PipelineParameters,
    PretrainParameters,
    StudentsParameters,
    SweepParameters,
)
from flows.knowledge.flow import knowledge
from flows.knowledge.reason import reason
from flows.pipeline import pipeline
from flows.pretrain import pretrain
from flows.servers.pools import CPU, GPU
from flows.servers.tags import INTERNAL, OFFERED, TRAINING
from flows.sweep.flow import sweep
from flows.trainings.leaderboard import leaderboard
from flows.trainings.train import train
from tasks.store.manifest import code_version


@dataclass(frozen=True)
class Offer:
    """One deployment: a flow, where it runs, what it asks."""

    flow: Any
    pool: str
    form: type[BaseModel] | None = None
    internal: bool = False

    @property
    def name(self) -> str:
        """The deployment is called as its flow."""
        return str(self.flow.name)

    @property
    def description(self) -> str:
        """What the page says under the name."""
        return ((self.form or self.flow).__doc__ or "").strip()

    @property
    def tags(self) -> list[str]:
        """What the automations know it by."""
        return [INTERNAL, TRAINING] if self.internal else [OFFERED]

    @property
    def entrypoint(self) -> str:
        """Where a worker finds the flow, in the installed package."""
        return f"{self.flow.fn.__module__}.{self.flow.fn.__name__}"

    @property
    def schema(self) -> dict[str, Any]:
        """What the form is drawn from."""
        return parameter_schema(self.flow.fn).model_dump(exclude_unset=True)

    def parameters(self, defaults: dict[str, str]) -> dict[str, Any]:
        """The form's values that differ from its own defaults.

        :param defaults: field -> value; those that the form has and that are not empty are used.
        """
        if self.form is None:
            return {}
        fields = self.form.model_fields
        return {"parameters": {name: value for name, value in defaults.items() if name in fields and value}}


OFFERS = [
    Offer(pipeline, CPU, PipelineParameters),
    Offer(pretrain, GPU, PretrainParameters),
    Offer(distil, CPU, DistilParameters),
    Offer(finetune, GPU, FinetuneParameters),
    Offer(finetune_all, CPU, FinetuneAllParameters),
    Offer(tables, CPU, AnalysisParameters),
    Offer(table5, CPU, AnalysisParameters),
    Offer(layers, CPU, AnalysisParameters),
    Offer(zero_shot_curves, CPU, AnalysisParameters),
    Offer(learning, CPU, AnalysisParameters),
    Offer(overlap, CPU, AnalysisParameters),
    Offer(families, CPU, AnalysisParameters),
    Offer(objectives, CPU, AnalysisParameters),
    Offer(knowledge, CPU, KnowledgeParameters),
    Offer(reason, CPU, ReasonParameters),
    Offer(sentences, CPU, AnalysisParameters),
    Offer(sharing, CPU, AnalysisParameters),
    Offer(replaced, CPU, AnalysisParameters),
    Offer(sizes, CPU, AnalysisParameters),
    Offer(students, CPU, StudentsParameters),
    Offer(distillation, CPU, DistillationParameters),
    Offer(entities, CPU, AnalysisParameters),
    Offer(sweep, CPU, SweepParameters),
    Offer(abstracts, CPU, AbstractsParameters),
    Offer(abstracts_tables, CPU, AbstractsTablesParameters),
    Offer(generate, CPU, GenerateParameters),
    Offer(few_shot, CPU, FewShotParameters),
    Offer(leaderboard, CPU),
    Offer(train, GPU, internal=True),
]


def version() -> str:
    """Of the deployments: the package's, and the git commit where there is one (`.dirty`: with local changes)."""
    code = code_version()
    commit = f"+{str(code['git'])[:12]}{'.dirty' if code['dirty'] else ''}" if code["git"] else ""
    return f"{code['package']}{commit}"
