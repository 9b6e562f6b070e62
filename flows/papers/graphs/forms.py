"""The forms of knowledge graphs, and what is checked of a graph that other forms name."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from flows.forms.fields import Form, field
from flows.forms.readers import listed
from gptcore.base.errors import InputError, require
from gptcore.base.settings import Settings, replace_settings
from gptcore.nlu.forms import form_of
from gptcore.papers.graphs.config import GroundingConfig, KagNETConfig, TransEConfig

if TYPE_CHECKING:
    from gptcore.nlu.spec import TaskSpec
    from tasks.store.artifact import Artifact
    from tasks.store.store import Store

_COLUMNS = "head,relation,tail"


@dataclass(frozen=True)
class GraphRequest:
    """A knowledge graph, and how vectors are learnt from it."""

    store: Store
    graph: str
    """Empty: the generated world's."""
    columns: tuple[str, ...]
    transe: TransEConfig


@dataclass(frozen=True)
class ReasonRequest(GraphRequest):
    """Questions to answer from their text and a graph's paths."""

    grounding: GroundingConfig
    kagnet: KagNETConfig
    spec: TaskSpec
    model: Artifact
    """Fine-tuned on the task."""
    datasets_url: str


class OnGraph(Form):
    """A knowledge graph, and vectors learnt from it."""

    graph: str = field("knowledge-graph", 0)
    columns: str = field("knowledge-columns", 1)
    store: str = field("store", 3)
    overrides: dict[str, Any] = field("knowledge-overrides", 4)
    out: str = field("knowledge-out", 5)

    def _settings(self, section: str, defaults: Settings) -> Settings:
        """The settings of a section.

        :raises InputError: an unknown section or setting, or a value that does not fit.
        """
        if odd := next((name for name in self.overrides if name not in self._sections), None):
            raise InputError(f"overrides: found {odd}, expected {', '.join(self._sections)}")
        return replace_settings(defaults, self.overrides.get(section, {}), f"overrides: {section}")

    @property
    def _sections(self) -> tuple[str, ...]:
        return ("transe",)

    def resolve(self, store: Store) -> GraphRequest:
        from gptcore.papers.graphs.graph import COLUMNS, graph_files

        columns = tuple(listed(self.columns))
        require(sorted(columns) == sorted(COLUMNS), f"--columns {self.columns}: expected {_COLUMNS} in some order")
        transe = self._settings("transe", TransEConfig())
        if self.graph:
            graph_files(self.graph)
        return GraphRequest(store, self.graph, columns, transe)


class KnowledgeParameters(OnGraph):
    """Facts of a knowledge graph, vectors learnt from them, and what these predict."""

    entities: list[str] = field("knowledge-entities", 2)


class ReasonParameters(OnGraph):
    """Questions answered from their text and the paths of a knowledge graph: KagNET."""

    task: str = field("reason-task", 2)
    model: str = field("reason-model", 6)
    datasets: str = field("datasets", 7)
    seeds: int = field("reason-seeds", 8)
    questions: int = field("reason-questions", 9)

    @property
    def _sections(self) -> tuple[str, ...]:
        return ("transe", "grounding", "kagnet")

    def resolve(self, store: Store) -> ReasonRequest:
        from flows.forms import checks
        from flows.forms.references import fine_tuned_model
        from gptcore.nlu.registry import task_spec

        graph = super().resolve(store)
        grounding = self._settings("grounding", GroundingConfig())
        kagnet = self._settings("kagnet", KagNETConfig())
        if graph.transe.rotation:
            raise InputError("transe.rotation = true: expected false, as KagNET's paths are made of steps")
        spec = task_spec(self.task)
        require(form_of(spec).choices, f"--task {self.task}: found the form {spec.form}, expected a task with choices")
        model = fine_tuned_model(store, self.model, self.task)
        datasets_url = checks.datasets_folder(store, self.datasets, [self.task])
        checks.chosen_tasks([self.task], datasets_url)
        return ReasonRequest(
            store, graph.graph, graph.columns, graph.transe, grounding, kagnet, spec, model, datasets_url
        )


def check_graph(store: Store, graph: str, links: str) -> None:
    """Check that the graph and the links of a pre-training that knows entities are there.

    :param graph: its folder, or vectors of the store; empty: the generated world's.
    :param links: a file; empty: there is none.
    :raises InputError: they are not there.
    """
    from flows.forms.checks import is_address
    from gptcore.papers.graphs.entities import read_links
    from gptcore.papers.graphs.graph import graph_files

    if links:
        read_links(links)
    if graph and is_address(graph):
        graph_files(graph)
    elif graph:
        store.resolve(graph, "vectors")
