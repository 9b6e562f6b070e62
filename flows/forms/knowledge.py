"""The forms of knowledge graphs."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from flows.forms import fields
from flows.forms.fields import Option, field
from flows.forms.form import Form
from flows.forms.readers import listed
from gptcore.base.errors import InputError
from gptcore.base.settings import Settings, replace_settings
from gptcore.knowledge.config import GroundingConfig, KagNETConfig, TransEConfig
from gptcore.nlu.forms import form_of

if TYPE_CHECKING:
    from tasks.store.store import Store

_COLUMNS = "head,relation,tail"


class OnGraph(Form):
    """A knowledge graph, and vectors learnt from it."""

    graph: str = field(
        0,
        "",
        "Folder with train.txt, valid.txt and test.txt, one fact a line: FB15k-237, WN18RR, ConceptNet, or your own.",
        empty="the generated, synthetic world's",
        title="Graph",
        option=Option(metavar="GRAPH", help="folder or URL of its files", positional=True),
    )
    columns: str = field(
        1,
        _COLUMNS,
        "What the files' columns are; ConceptNet's: relation,head,tail.",
        option=Option(metavar="A,B,C"),
    )
    store: str = fields.store(3)
    overrides: dict[str, Any] = fields.overrides(4, '{"transe": {"dim": 50}}', "Settings that differ from the defaults")
    out: str = fields.out(5, "the tables (Markdown, CSV, HTML) and figures")

    def settings(self, section: str, defaults: Settings) -> Settings:
        """The settings of a section.

        :raises InputError: an unknown section or setting, or a value that does not fit.
        """
        if odd := next((name for name in self.overrides if name not in self._sections), None):
            raise InputError(f"overrides: found {odd}, expected {', '.join(self._sections)}")
        return replace_settings(defaults, self.overrides.get(section, {}), f"overrides: {section}")

    @property
    def column_names(self) -> list[str]:
        """What the files' columns are, in their order."""
        return listed(self.columns)

    @property
    def _sections(self) -> tuple[str, ...]:
        return ("transe",)

    @property
    def transe(self) -> TransEConfig:
        """How the vectors are learnt."""
        return self.settings("transe", TransEConfig())

    def _look_up(self, store: Store) -> None:
        from gptcore.knowledge.graph import COLUMNS, graph_files

        if sorted(self.column_names) != sorted(COLUMNS):
            raise InputError(f"--columns {self.columns}: expected {_COLUMNS} in some order")
        _ = self.transe
        if self.graph:
            graph_files(self.graph)


class KnowledgeParameters(OnGraph):
    """Facts of a knowledge graph, vectors learnt from them, and what these predict."""

    entities: list[str] = field(
        2,
        [],
        "Entities whose neighbours to show.",
        empty="those with the most facts",
        option=Option(metavar="A,B", read=listed),
    )


class ReasonParameters(OnGraph):
    """Questions answered from their text and the paths of a knowledge graph: KagNET."""

    task: str = field(
        2, "commonsenseqa", "Task with choices whose questions are asked.", title="Task", option=Option(metavar="TASK")
    )
    model: str = field(
        6,
        "best",
        "Model that reads the texts, fine-tuned on the task: digest (or its beginning), a URL, or best.",
        option=fields.MODEL,
    )
    datasets: str = fields.datasets(7, "Folder of the datasets.")
    seeds: int = field(8, 1, "Trainings with seeds 0, 1, 2, ...", ge=1, le=100)
    questions: int = field(9, 3, "Dev questions whose paths are drawn.", ge=1, le=50)

    @property
    def _sections(self) -> tuple[str, ...]:
        return ("transe", "grounding", "kagnet")

    @property
    def grounding(self) -> GroundingConfig:
        """How questions are laid over the graph."""
        return self.settings("grounding", GroundingConfig())

    @property
    def kagnet(self) -> KagNETConfig:
        """The network and its training."""
        return self.settings("kagnet", KagNETConfig())

    def _look_up(self, store: Store) -> None:
        from flows.forms import checks
        from flows.forms.references import fine_tuned_model
        from gptcore.nlu.registry import task_spec

        super()._look_up(store)
        _ = self.grounding, self.kagnet
        if not form_of(spec := task_spec(self.task)).choices:
            raise InputError(f"--task {self.task}: found the form {spec.form}, expected a task with choices")
        fine_tuned_model(store, self.model, self.task)
        checks.chosen_tasks([self.task], checks.datasets_folder(store, self.datasets, [self.task]))
