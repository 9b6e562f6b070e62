"""The forms of rows, a file each, found by their names; nothing outside this room asks which one a row is of.

A form is the file ``NAME.py`` in this folder with a :class:`Form` called ``FORM``. One of another package is an entry
point of the group ``gptmill.forms`` that leads to its :class:`Form`.
"""

from __future__ import annotations

from collections.abc import Mapping
from importlib import import_module

from gptcore.base.errors import InputError, nearest
from gptcore.base.named import Named
from gptcore.nlu.forms.form import DROPS_MISSING, MISSING, Form, label_number, label_text
from gptcore.nlu.spec import TaskSpec

__all__ = ["DROPS_MISSING", "FORMS", "MISSING", "Form", "form_named", "form_of", "label_number", "label_text"]

ENTRY_POINTS = "gptmill.forms"
_OURS = ("single", "labels", "pair", "choices", "span", "tags")


def _ours() -> list[Form]:
    return [import_module(f"{__name__}.{name}").FORM for name in _OURS]


FORMS: Mapping[str, Form] = Named(ENTRY_POINTS, _ours)


def form_named(name: str, where: str = "") -> Form:
    """The form of a recorded name.

    :param where: what holds the name, for the error message.
    :raises InputError: an unknown form.
    """
    if name not in FORMS:
        raise InputError(f"{where}form = {name!r}, {nearest(name, FORMS)}")
    return FORMS[name]


def form_of(spec: TaskSpec) -> Form:
    """The form of a task's rows.

    :raises InputError: the task was recorded with a form of a package that is not installed.
    """
    return form_named(spec.form, f"{spec.name}: ")
