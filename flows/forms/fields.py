"""What every form is, and its fields, each said once in a file `fields.toml`: how the browser draws it, its option."""

from __future__ import annotations

import json
import os
import re
import tomllib
from collections.abc import Collection, Mapping
from dataclasses import dataclass, fields
from enum import StrEnum
from pathlib import Path, PurePosixPath
from string import Template
from typing import TYPE_CHECKING, Annotated, Any, Protocol, Self, TypeVar, cast, get_args

from pydantic import BaseModel, ConfigDict, Field, ValidatorFunctionWrapHandler, WrapValidator
from pydantic.fields import FieldInfo

from flows.forms import readers
from flows.forms.readers import as_typed
from flows.forms.settings import CHECKPOINT
from flows.plugins import added_fields, named
from flows.servers.environment import LIGHT_STORE
from gptcore.base.addresses import UNRECORDABLE
from gptcore.base.errors import InputError
from gptcore.config import FINE_TUNING, PRESETS, FinetuneConfig
from gptcore.families import FAMILIES, offered
from gptcore.nlu.own_task import is_task_file
from gptcore.nlu.registry import BEYOND, REGISTRY

if TYPE_CHECKING:
    from tasks.store.store import Store

_SAID: dict[str, dict[str, Any]] = added_fields() | tomllib.loads(
    Template(Path(__file__).with_name("fields.toml").read_text(encoding="utf-8")).substitute(
        store=LIGHT_STORE,
        tasks=" ".join(REGISTRY | BEYOND),
        families=", ".join(f"{name} ({FAMILIES[name].learns})" for name in offered()),
        **{f"paper_{field.name}": as_typed(field.default) for field in fields(FinetuneConfig)},
    )
)
_LIMITS = ("title", "ge", "gt", "le", "lt", "allow_inf_nan", "min_length")


@dataclass(frozen=True)
class _Drawn:
    """What pydantic calls for the rest of a field's JSON schema: its position among the form's fields, and which
    addresses a server refuses, as it would record them.

    The head of `fields.toml` says what the others mean.
    """

    position: int
    text: str
    empty: str = ""
    option: str | bool = ""
    metavar: str = ""
    help: str = ""
    read: str = ""
    positional: bool = False
    repeated: bool = False

    def __call__(self, schema: dict[str, Any]) -> None:
        schema["position"] = self.position
        if self.empty and isinstance(schema.get("default"), int | float):
            del schema["default"]  # 0 or -1, which nobody means: the browser shows an empty field
        text = schema.get("items", schema)  # its own, or that of its list
        if text.get("type") == "string" and "pattern" not in text:
            text["not"] = {"pattern": UNRECORDABLE}


def field(name: str, position: int, default: Any = None) -> Any:
    """A field of a form.

    :param name: what `fields.toml` calls it.
    :param position: its place among the form's fields in the browser.
    :param default: where the file does not say it.
    """
    said = {**_SAID.get(_SAID[name].get("like", ""), {}), **_SAID[name]}
    default = said.get("default", ...) if default is None else default
    said["text"] = text = said["text"].replace("{default}", as_typed(default))
    drawn = _Drawn(position, **{key: said[key] for key in _Drawn.__annotations__ if key in said})
    if drawn.empty:
        text += f" Empty: {drawn.empty}." if text.endswith(".") else f"; empty: {drawn.empty}."
    limits = {key: said[key] for key in _LIMITS if key in said}
    return Field(default, description=text, json_schema_extra=drawn, **limits)


@dataclass(frozen=True)
class FieldOption:
    """The option that fills a field of a form."""

    field: str
    info: FieldInfo
    drawn: _Drawn

    @property
    def flag(self) -> str:
        """As it is typed: ``--max-rows``; for an argument without a name, what stands for it."""
        if self.drawn.positional:
            return self.drawn.metavar
        return f"--{(self.drawn.option or self.field)}".replace("_", "-")

    @property
    def key(self) -> str:
        """The attribute of the parsed options that has its value."""
        return str(self.drawn.option or self.field).replace("-", "_")

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
        text = (self.drawn.help or "{text}").replace("{text}", spoken(self.drawn.text))
        text = text.replace("{names}", ", ".join(self.names))
        return f"{text} ({self.said_default})" if self.said_default else text

    @property
    def names(self) -> list[str]:
        """Those that its value is one of, or its list's are; empty where it is of another kind."""
        kinds = [self.info.annotation]
        for kind in kinds:
            if isinstance(kind, type) and issubclass(kind, StrEnum):
                return [str(name) for name in kind]
            kinds += get_args(kind)
        return []

    def argument(self) -> dict[str, Any]:
        """The name, the names that its value may be, and the settings for ``ArgumentParser.add_argument``.

        The default is None, which leaves the field's own to the form.
        """
        default, kind = self.info.default, self.info.annotation
        settings: dict[str, Any] = {"name": self.flag, "names": self.names, "help": self.help.replace("%", "%%")}
        if kind is bool:
            return {**settings, "action": "store_true", "default": None}
        if self.drawn.metavar or (isinstance(default, list) and not self.drawn.repeated):
            settings["metavar"] = self.drawn.metavar or "A,B"
        if self.drawn.positional:
            return {**settings, "name": self.key} | ({} if self.info.is_required() else {"nargs": "?"})
        if self.drawn.repeated:
            settings["action"] = "append"
        if kind in (int, float):
            settings["type"] = kind
        return settings

    def value(self, given: Any) -> Any:
        """The field's value for what argparse has made of the option.

        :raises InputError: the option's text cannot be read.
        """
        if self.info.annotation is bool:
            return not self.info.default
        if isinstance(given, list):
            return given
        if self.drawn.read:
            return named(self.drawn.read if ":" in self.drawn.read else f"{readers.__name__}:{self.drawn.read}")(given)
        return readers.listed(given) if isinstance(self.info.default, list) else given


def spoken(text: str) -> str:
    """A description as ``--help`` has it: no capital where no name begins, no full stop."""
    text = re.sub(r"^[A-Z](?=[a-z ])", lambda first: first[0].lower(), text)
    return text if text.endswith("...") else text.removesuffix(".")


def options_of(form: type[BaseModel]) -> list[FieldOption]:
    """The options of a form's fields, by their positions; of no field that only the browser fills."""
    options = [FieldOption(name, info, _drawn(info)) for name, info in form.model_fields.items()]
    return [each for each in sorted(options, key=lambda each: each.drawn.position) if each.drawn.option is not False]


def _drawn(info: FieldInfo) -> _Drawn:
    assert isinstance(info.json_schema_extra, _Drawn), "a form's fields are made by field()"
    return info.json_schema_extra


def given_fields(form: type[BaseModel], options: object, besides: Collection[str] = ()) -> dict[str, Any]:
    """What parsed options say of a form's fields; a list that is empty is as good as left out.

    :param besides: fields that something else fills.

    :raises InputError: an option's text cannot be read, or is the number that stands for nothing said.
    """
    given = {}
    for option in options_of(form):
        value = None if option.field in besides else getattr(options, option.key, None)
        if value is not None and (value := option.value(value)) != []:
            if option.drawn.empty and isinstance(value, int | float) and value == option.info.default:
                raise InputError(f"{option.flag}: found {value:g}, leave it out for: {option.drawn.empty}")
            given[option.field] = value
    return given


def flag_of(form: type[BaseModel], name: str) -> str:
    """The option that fills a field, as it is typed; of a field that has none, its name."""
    return next((option.flag for option in options_of(form) if option.field == name), name)


TaskName = StrEnum("TaskName", {name: name for name in REGISTRY | BEYOND})  # type: ignore[misc]  # known at run time
FamilyName = StrEnum("FamilyName", {name: name for name in offered()})  # type: ignore[misc]  # as above
PresetName = StrEnum("PresetName", {name: name for name in PRESETS})  # type: ignore[misc]  # as above
InheritedPresetName = StrEnum("InheritedPresetName", {name: name for name in (CHECKPOINT, *FINE_TUNING)})  # type: ignore[misc]  # as above


OWN_TASKS = "GPTMILL_OWN_TASKS"
"""Environment variable of a deployment's runs: JSON, name -> file of the users' own tasks that its form lists."""


def _own_task(value: object, check: ValidatorFunctionWrapHandler) -> Any:
    """The address of the file of a user's own task; anything else is one of the names that every form lists."""
    if isinstance(value, str) and OWN_TASKS in os.environ:
        value = json.loads(os.environ[OWN_TASKS]).get(value, value)
    return value if isinstance(value, str) and is_task_file(value) else check(value)


OR_OWN_TASK = WrapValidator(_own_task)
"""What lets a field of a form's names of tasks take the address of a task's file, too."""
TaskChoice = Annotated[TaskName, OR_OWN_TASK]
"""One of the twelve or of those beyond them, or the address of a task's file."""


Rate = Annotated[float, Field(gt=0, allow_inf_nan=False)]
"""A learning rate."""


Request = TypeVar("Request", covariant=True)
_REQUEST = "_request"


class _Resolves(Protocol[Request]):
    """A form, by what it resolves to."""

    def resolve(self, store: Store) -> Request:
        """Look up what the filled form names, and give all of it."""


class Form(BaseModel):
    """What a flow is told; its request is what that means, looked up once, before anything is computed."""

    model_config = ConfigDict(extra="forbid", frozen=True, use_enum_values=True)

    def resolve(self, store: Store) -> object:
        """What the filled form asks for, every name in it looked up, in this order: settings, text, tokenizer, weights,
        scheduler, checkpoint, tasks.

        Where settings are read by the checkpoint's family, it comes before them.

        :param store: that of the form; the addresses among its fields can be used.
        :raises InputError: for the first name of something that is not there, or does not fit.
        """
        return store

    @property
    def request(self: _Resolves[Request]) -> Request:
        """What the form :meth:`resolves to <resolve>`; the same value whenever it is asked for.

        :raises InputError: an address cannot be used, or as there.
        """
        from flows.forms.checks import check_addresses

        known = vars(self)
        if _REQUEST not in known:
            known[_REQUEST] = self.resolve(check_addresses(known))
        return cast(Request, known[_REQUEST])

    def check(self) -> None:
        """Look up what the filled form names.

        :raises InputError: for the first that is not there, or does not fit.
        """
        _ = self.request

    def model_copy(self, *, update: Mapping[str, Any] | None = None, deep: bool = False) -> Self:
        """A copy with some fields changed, which is looked up on its own."""
        copied = super().model_copy(update=update, deep=deep)
        vars(copied).pop(_REQUEST, None)
        return copied

    def headline(self) -> list[str]:
        """What a run's name says of the form behind the flow: by default the preset or task, unless it is inherited."""
        settings = self.model_dump()
        names = (str(settings[name]) for name in ("preset", "task") if name in settings)
        return [PurePosixPath(name).stem if is_task_file(name) else name for name in names if name != CHECKPOINT]


def form_named(name: str) -> type[Form]:
    """A form by its name in :mod:`flows.forms.parameters`, or as "module:class" of another module.

    The command line imports the forms of one command alone.
    """
    found: type[Form] = named(name if ":" in name else f"flows.forms.parameters:{name}")
    return found
