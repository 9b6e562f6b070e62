"""The analyses that there are: flows, each of which makes a table or figure from the stages' artifacts.

Plugins list theirs (:mod:`flows.plugins`). A package that brings nothing else needs no table: an entry point of the
group ``gptmill.analyses`` leads to its flow, which takes :class:`flows.forms.parameters.AnalysisParameters`.

What the store holds is not computed again: after a pipeline an analysis adds only its own runs.
"""

from __future__ import annotations

from dataclasses import dataclass
from importlib.metadata import entry_points
from importlib.util import find_spec
from textwrap import fill
from typing import Any

from flows.plugins import added, named, ordered

ENTRY_POINTS = "gptmill.analyses"


@dataclass(frozen=True)
class Offered:
    """An analysis, of which nothing is imported yet."""

    flow: str
    """Its module and name: "module:flow"."""
    text: str = ""
    """What it answers."""
    takes: str = ""
    """How long it takes, as measured or by its trainings."""
    needs: str = ""
    """What is made first where the store lacks it, and which files it reads."""
    form: str = "AnalysisParameters"
    """That of its flow, as :func:`flows.forms.fields.form_named` takes it.

    All have the same fields, and some look up more."""
    after: str = ""
    """The analysis that it stands behind in lists."""
    requires: str = ""
    """Another plugin's package, without which it is not offered."""

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
        return named(self.flow)


def analyses() -> dict[str, Offered]:
    """Name on the command line -> analysis: the plugins' in their order, then those of single entry points."""
    tables = added("analyses")
    listed = {name: Offered(**tables[name]) for name in ordered((), tables)}
    listed = {name: each for name, each in listed.items() if not each.requires or find_spec(each.requires)}
    points = {point.name: Offered(point.value) for point in entry_points(group=ENTRY_POINTS)}
    return {**listed, **{name: analysis for name, analysis in points.items() if name not in listed}}
