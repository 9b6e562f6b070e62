"""A field of a form, said once: how the browser draws it, and which option of the command line fills it."""

from __future__ import annotations

import re
from collections.abc import Callable, Collection
from dataclasses import dataclass
from typing import Any, TypedDict, Unpack

from pydantic import BaseModel, Field
from pydantic.fields import FieldInfo

from flows.forms.readers import listed


@dataclass(frozen=True)
class Option:
    """What the option of a field has that does not follow from the field.

    :param name: without its dashes. Empty: the field's name.
    :param metavar: what stands for its value in ``--help``. None: argparse's choice, or ``A,B`` for a list.
    :param help: in place of the field's own description. What the default is follows it all the same.
    :param read: from the option's text to the field's value, where pydantic does not know how.
    :param positional: an argument without a name.
    :param repeated: may come again, a value of the field's list each time.
    """

    name: str = ""
    metavar: str | None = None
    help: str = ""
    read: Callable[[str], Any] | None = None
    positional: bool = False
    repeated: bool = False


_PLAIN = Option()


@dataclass(frozen=True)
class _Drawn:
    """What pydantic calls for the rest of a field's JSON schema: that is the position among the form's fields."""

    position: int
    text: str
    empty: str
    option: Option | None

    def __call__(self, schema: dict[str, Any]) -> None:
        schema["position"] = self.position


class Limits(TypedDict, total=False):
    """What a field's value must be, and its title in place of the field's name; as pydantic's ``Field`` has them."""

    title: str
    ge: float
    gt: float
    le: float
    lt: float
    allow_inf_nan: bool
    min_length: int


def field(
    position: int,
    default: Any = ...,
    text: str = "",
    *,
    empty: str = "",
    option: Option | None = _PLAIN,
    **limits: Unpack[Limits],
) -> Any:
    """A field of a form.

    :param position: its place among the form's fields in the browser.
    :param text: its description, without what an empty default stands for.
    :param empty: what the default stands for where that is "", [], 0 or -1, as "all".
    :param option: what its option has of its own; None where no command line fills it.
    """
    description = text
    if empty:
        mark = default if isinstance(default, int) else "Empty"
        description += f"{' ' if text.endswith('.') else '; '}{mark}: {empty}."
    return Field(default, description=description, json_schema_extra=_Drawn(position, text, empty, option), **limits)


@dataclass(frozen=True)
class FieldOption:
    """The option that fills a field of a form."""

    field: str
    info: FieldInfo
    drawn: _Drawn
    option: Option

    @property
    def flag(self) -> str:
        """As it is typed: ``--max-rows``; for an argument without a name, what stands for it."""
        if self.option.positional:
            return self.option.metavar or self.field.upper()
        return f"--{(self.option.name or self.field).replace('_', '-')}"

    @property
    def key(self) -> str:
        """The attribute of the parsed options that has its value."""
        return (self.option.name or self.field).replace("-", "_")

    @property
    def said_default(self) -> str:
        """What ``--help`` says of the field's default, in parentheses at the end; empty where that is nothing."""
        default = self.info.default
        if self.drawn.empty:
            return self.drawn.empty
        if self.info.is_required() or isinstance(default, bool | dict):
            return ""
        return ",".join(map(str, default)) if isinstance(default, list) else as_typed(default)

    @property
    def help(self) -> str:
        """The text of ``--help``: the field's description or the option's own, and the default."""
        text = self.option.help or spoken(self.drawn.text)
        return f"{text} ({self.said_default})" if self.said_default else text

    def argument(self) -> dict[str, Any]:
        """The name and the settings for ``ArgumentParser.add_argument``.

        The default is None, which leaves the field's own to the form; but that of the store, which commands look at
        that fill no form.
        """
        default, kind = self.info.default, self.info.annotation
        settings: dict[str, Any] = {"name": self.flag, "help": self.help.replace("%", "%%")}
        if kind is bool:
            return {**settings, "action": "store_true", "default": None}
        if self.option.metavar or (isinstance(default, list) and not self.option.repeated):
            settings["metavar"] = self.option.metavar or "A,B"
        if self.option.positional:
            return {**settings, "name": self.key} | ({} if self.info.is_required() else {"nargs": "?"})
        if self.option.repeated:
            settings["action"] = "append"
        if kind in (int, float):
            settings["type"] = kind
        return settings | ({"default": default} if self.field == "store" else {})

    def value(self, given: Any) -> Any:
        """The field's value for what argparse has made of the option.

        :raises InputError: the option's text cannot be read.
        """
        if self.info.annotation is bool:
            return not self.info.default
        if isinstance(given, list):
            return given
        if self.option.read is not None:
            return self.option.read(given)
        return listed(given) if isinstance(self.info.default, list) else given


def spoken(text: str) -> str:
    """A description as ``--help`` has it: no capital where no name begins, no full stop."""
    text = re.sub(r"^[A-Z](?=[a-z ])", lambda first: first[0].lower(), text)
    return text if text.endswith("...") else text.removesuffix(".")


def as_typed(value: Any) -> str:
    """A value as a person types it: 6.25e-5, not 6.25e-05."""
    return re.sub(r"e-0+", "e-", f"{value:g}") if isinstance(value, float) else str(value)


def options_of(form: type[BaseModel]) -> list[FieldOption]:
    """The options of a form's fields, by their positions; of no field that only the browser fills."""
    fields = sorted(((_drawn(info), name, info) for name, info in form.model_fields.items()), key=_position)
    return [FieldOption(name, info, drawn, drawn.option) for drawn, name, info in fields if drawn.option is not None]


def _position(found: tuple[_Drawn, str, FieldInfo]) -> int:
    return found[0].position


def _drawn(info: FieldInfo) -> _Drawn:
    drawn = info.json_schema_extra
    assert isinstance(drawn, _Drawn), "a form's fields are made by field()"
    return drawn


def given_fields(form: type[BaseModel], options: object, besides: Collection[str] = ()) -> dict[str, Any]:
    """What parsed options say of a form's fields; a list that is empty is as good as left out.

    :param besides: fields that something else fills.

    :raises InputError: an option's text cannot be read.
    """
    given = {}
    for option in options_of(form):
        value = None if option.field in besides else getattr(options, option.key, None)
        if value is not None and (value := option.value(value)) != []:
            given[option.field] = value
    return given


def flag_of(form: type[BaseModel], name: str) -> str:
    """The option that fills a field, as it is typed; of a field that has none, its name."""
    return next((option.flag for option in options_of(form) if option.field == name), name)
