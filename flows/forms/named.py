"""A form by its name, of whichever module it is: the command line imports those of one command alone."""

from __future__ import annotations

from importlib import import_module

from flows.forms.form import Form

_MODULES = ("parameters", "generation", "knowledge")


def form_named(name: str) -> type[Form]:
    """The form of a name.

    :raises KeyError: there is none.
    """
    for module in _MODULES:
        found = getattr(import_module(f"flows.forms.{module}"), name, None)
        if isinstance(found, type) and issubclass(found, Form):
            return found
    raise KeyError(name)
