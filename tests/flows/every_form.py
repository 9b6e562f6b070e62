"""The forms of all commands and analyses by their names, those of plugins among them."""

from __future__ import annotations

from flows.analyses import analyses
from flows.cli.options import read_commands
from flows.forms.fields import Form, form_named

COMMANDS = read_commands()
FILLED_BY = {form_named(form).__name__: command for command in COMMANDS for form in command.forms}
"""Form -> the command whose options fill it."""
(_analysis,) = (command for command in COMMANDS if command.name == "analysis")
FILLED_BY |= {form_named(each.form).__name__: _analysis for each in analyses().values()}
FORMS: dict[str, type[Form]] = {
    form.__name__: form
    for form in (
        *(form_named(form) for command in COMMANDS for form in command.forms),
        *(form_named(each.form) for each in analyses().values()),
    )
}
"""Name -> form; not that of upkeep, of which each part is a command of its own."""
