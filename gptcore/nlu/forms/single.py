"""A text with one label, or one grade."""

from __future__ import annotations

from gptcore.nlu.forms.form import Form

FORM = Form("single", ("text",), n_fields=(1,), fields_in_words="a list of one column")
