"""Two texts with one label, or one grade: premise and hypothesis, or two of which neither is the first by nature."""

from __future__ import annotations

from gptcore.nlu.forms.form import FLOORS_OF_TEXTS, Form

FORM = Form(
    "pair",
    ("premise", "hypothesis"),
    n_fields=(2,),
    fields_in_words="a list of two columns",
    symmetric_names=("text1", "text2"),
    floors=FLOORS_OF_TEXTS,
)
