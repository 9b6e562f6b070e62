"""The forms of rows, a file each, found by their names; nothing outside this room asks which one a row is of.

A form is the file ``NAME.py`` in this folder with a :class:`Form` called ``FORM``. One of another package is an entry
point of the group ``gptmill.forms`` that leads to its :class:`Form`.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from functools import cached_property
from importlib import import_module
from importlib.metadata import entry_points

from gptcore.base.errors import InputError
from gptcore.nlu.forms.form import Form, label_text
from gptcore.nlu.spec import TaskSpec

__all__ = ["FORMS", "Form", "form_named", "form_of", "label_text"]

ENTRY_POINTS = "gptmill.forms"
_OURS = ("single", "labels", "pair", "choices", "span", "tags")


class _Forms(Mapping[str, Form]):
    """Name -> form: those of this folder, then those of other packages, which are looked for when they are needed."""

    @cached_property
    def _ours(self) -> dict[str, Form]:
        return {name: import_module(f"{__name__}.{name}").FORM for name in _OURS}

    @cached_property
    def _theirs(self) -> dict[str, Form]:
        found = [point.load() for point in entry_points(group=ENTRY_POINTS)]
        return {form.name: form for form in found if form.name not in self._ours}

    def __getitem__(self, name: str) -> Form:
        return self._ours[name] if name in self._ours else self._theirs[name]

    def __iter__(self) -> Iterator[str]:
        yield from self._ours
        yield from self._theirs

    def __len__(self) -> int:
        return len(self._ours) + len(self._theirs)


FORMS: Mapping[str, Form] = _Forms()


def form_named(name: str, where: str = "") -> Form:
    """The form of a recorded name.

    :param where: what holds the name, for the error message.
    :raises InputError: an unknown form.
    """
    if name not in FORMS:
        raise InputError(f"{where}form = {name!r}, expected one of {', '.join(FORMS)}")
    return FORMS[name]


def form_of(spec: TaskSpec) -> Form:
    """The form of a task's rows.

    :raises InputError: the task was recorded with a form of a package that is not installed.
    """
    return form_named(spec.form, f"{spec.name}: ")
