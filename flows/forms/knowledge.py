"""The form of knowledge graphs."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from flows.forms import fields
from flows.forms.form import Form
from flows.forms.option import Option, field
from flows.forms.readers import listed
from gptcore.errors import InputError
from gptcore.knowledge.config import TransEConfig
from gptcore.settings import replace_settings

if TYPE_CHECKING:
    from tasks.store.store import Store

_COLUMNS = "head,relation,tail"


class KnowledgeParameters(Form):
    """Facts of a knowledge graph, vectors learnt from them, and what these predict."""

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
    entities: list[str] = field(
        2,
        [],
        "Entities whose neighbours to show.",
        empty="those with the most facts",
        option=Option(metavar="A,B", read=listed),
    )
    store: str = fields.store(3)
    overrides: dict[str, Any] = fields.overrides(4, '{"transe": {"dim": 50}}', "Settings that differ from the defaults")
    out: str = fields.out(5, "the tables (Markdown, CSV, HTML)")

    @property
    def transe(self) -> TransEConfig:
        """How the vectors are learnt.

        :raises InputError: an unknown section or setting, or a value that does not fit.
        """
        if odd := next((section for section in self.overrides if section != "transe"), None):
            raise InputError(f"overrides: found {odd}, expected transe")
        return replace_settings(TransEConfig(), self.overrides.get("transe", {}), "overrides: transe")

    def _look_up(self, store: Store) -> None:
        from gptcore.knowledge.graph import COLUMNS, graph_files

        if sorted(self.columns.split(",")) != sorted(COLUMNS):
            raise InputError(f"--columns {self.columns}: expected {_COLUMNS} in some order")
        _ = self.transe
        if self.graph:
            graph_files(self.graph)
