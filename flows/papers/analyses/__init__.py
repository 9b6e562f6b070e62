"""The paper's analyses, each a flow that makes its table or figure from the stages' artifacts.

`analyses.toml` lists them. One of another package is an entry point of the group ``gptmill.analyses`` that leads to its
flow, which takes :class:`flows.forms.parameters.AnalysisParameters`.

What the store holds is not computed again: after a pipeline an analysis adds only its own runs.
"""

from __future__ import annotations

from dataclasses import dataclass
from importlib import import_module
from importlib.metadata import entry_points
from textwrap import fill
from typing import Any

from gptcore.base.tables import read_table

ENTRY_POINTS = "gptmill.analyses"


@dataclass(frozen=True)
class Offered:
    """An analysis, of which nothing is imported yet."""

    flow: str
    """Its module and name."""
    text: str = ""
    """What it answers."""
    takes: str = ""
    """How long it takes, as measured or by its trainings."""
    needs: str = ""
    """What is made first where the store lacks it, and which files it reads."""
    form: str = "AnalysisParameters"
    """That of its flow; all have the same fields, and some look up more."""

    def described(self) -> str:
        """What is said of it, in lines for a terminal."""
        said = {"": self.text, "takes: ": self.takes, "needs: ": self.needs}
        return "\n".join(
            fill(text, 78, initial_indent=f"  {word}", subsequent_indent="  " + " " * len(word), break_on_hyphens=False)
            for word, text in said.items()
            if text
        )

    def load(self) -> Any:
        """The flow, which takes its form and gives the analyses that it made."""
        module, _, name = self.flow.rpartition(".")
        return getattr(import_module(module), name)


def analyses() -> dict[str, Offered]:
    """Name on the command line -> analysis: ours in their order, then those of other packages."""
    ours = {name: Offered(**table) for name, table in read_table(__file__, "analyses.toml").items()}
    theirs = {point.name: Offered(point.value.replace(":", ".")) for point in entry_points(group=ENTRY_POINTS)}
    return {**ours, **{name: analysis for name, analysis in theirs.items() if name not in ours}}
