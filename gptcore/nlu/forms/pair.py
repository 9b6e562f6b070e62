"""Two texts with one label, or one grade: premise and hypothesis, or two of which neither is the first by nature."""

from __future__ import annotations

from gptcore.nlu.forms.form import FLOORS_OF_TEXTS, Form
from gptcore.nlu.spec import TaskSpec


class Pair(Form):
    """See this module's introduction."""

    def names_of(self, spec: TaskSpec) -> tuple[str, ...]:
        return ("text1", "text2") if spec.symmetric else self.field_names


FORM = Pair(
    "pair",
    ("premise", "hypothesis"),
    n_fields=(2,),
    fields_in_words="a list of two columns",
    symmetric=True,
    floors=FLOORS_OF_TEXTS,
)
