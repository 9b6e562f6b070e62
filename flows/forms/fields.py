"""A field of a form, said once: how the browser draws it, and which option of the command line fills it.

Below are the fields that several forms have, each at its own position.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Collection
from dataclasses import dataclass
from typing import Any, TypedDict, Unpack

from pydantic import BaseModel, Field
from pydantic.fields import FieldInfo

from flows.forms.readers import config_file, learning_rates, listed, task_names
from flows.servers.environment import LIGHT_STORE
from gptcore.config import FinetuneConfig
from gptcore.families import offered


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


# --- fields of several forms

ADDRESS = Option(metavar="URL")
MODEL = Option(metavar="REF")


def preset(default: str, text: str = "Sizes and schedules: demo, small, long, best or paper.") -> Any:
    return field(0, default, text, title="Preset")


def store(position: int) -> Any:
    return field(position, LIGHT_STORE, "Where artifacts live: a folder or any fsspec URL (s3://...).", option=ADDRESS)


def corpus(position: int, text: str = "Books: folder, glob or URL.", empty: str = "") -> Any:
    return field(position, "", text, empty=empty or "the generated, synthetic world", option=ADDRESS)


def datasets(position: int, text: str = "Folder of the twelve datasets.") -> Any:
    option = Option(metavar="URL", help=f"{spoken(text)}, hf:// too")
    return field(position, "", text, empty="the generated, synthetic world", option=option)


def overrides(position: int, example: str, text: str = "Settings that differ") -> Any:
    in_file = Option("config", "FILE", "TOML file with settings that differ from the preset", config_file)
    return field(position, {}, f"{text}, e.g. {example}.", option=in_file)


def tasks(position: int) -> Any:
    option = Option(read=task_names, help="only these tasks, files of your own among them: rte,./my-task.toml")
    return field(position, [], "Only these tasks.", empty="every task whose data is there", option=option)


def checkpoint(position: int) -> Any:
    return field(
        position,
        "latest",
        "Pre-trained model: one of the store's, or type a digest (or its beginning), a URL, latest, or "
        "models:/NAME@ALIAS of MLflow's registry.",
        option=MODEL,
    )


def tokenizer(position: int) -> Any:
    return field(
        position,
        "",
        "Pinned tokenizer: digest (or beginning), latest, a URL, or a folder with a vocabulary; then only new books "
        "are read.",
        empty="learnt from the corpus",
        option=MODEL,
    )


def start(position: int) -> Any:
    return field(
        position,
        "",
        "Go on from a pre-trained model's weights: its digest (or beginning), a URL, latest, or a folder of Hugging "
        "Face's.",
        empty="random weights",
        title="From",
        option=Option("from", "REF"),
    )


def teacher(position: int) -> Any:
    return field(
        position,
        "",
        "Pre-trained model that the network learns from beside the text: its digest (or beginning), a URL, latest. "
        "DistilBERT and TinyBERT need one.",
        empty="the text alone",
        title="Teacher",
        option=MODEL,
    )


def graph(position: int) -> Any:
    return field(
        position,
        "",
        "Knowledge graph whose entities stand beside words, for ERNIE: the folder of its files, or the digest (or its "
        "beginning) of vectors that are learnt from it.",
        empty="for ERNIE the generated, synthetic world's",
        title="Graph",
        option=Option(metavar="GRAPH"),
    )


def links(position: int) -> Any:
    return field(
        position,
        "",
        "What names in single books mean, for ERNIE: a file whose rows are a book's file, a name in it and the graph's "
        "entity, between tabs.",
        empty="names mean what the graph calls so",
        title="Links",
        option=Option(metavar="FILE"),
    )


def nproc(position: int) -> Any:
    text = "Training processes for pre-training, one a GPU."
    return field(position, 0, text, empty="as many as a machine has GPUs; without any, one", ge=0)


def shard(position: int) -> Any:
    text = "Weights, gradients and optimiser sharded over the processes: for models beyond one GPU. Same results."
    return field(position, False, text)


def family(position: int) -> Any:
    return field(
        position,
        "gpt",
        "Network, text and what is learnt: decoders gpt, gpt2, gptbert (next tokens and hidden words); encoders bert, "
        "albert, electra; distilbert and tinybert, which learn from a teacher; ernie, which knows a graph's entities.",
        title="Family",
        option=Option(metavar="NAME", help=f"network and text: {', '.join(offered())}"),
    )


def seeds(position: int, text: str = "Runs with seeds 0, 1, 2, ...", empty: str = "as preset and task say") -> Any:
    return field(position, 0, text, empty=empty, ge=0, le=100)


def jobs(position: int) -> Any:
    return field(position, 0, "Fine-tunes at the same time.", empty="one a core, or one a GPU; 16 on Slurm", ge=0)


def dask(position: int) -> Any:
    text = "Dask scheduler address for the corpus stages."
    return field(position, "", text, empty="this machine", option=Option(metavar="ADDRESS", help=text[:-1]))


def out(position: int, what: str = "the tables (Markdown, CSV) and figures (PNG)") -> Any:
    return field(position, "", f"A local folder for {what}.", empty="none", option=Option(metavar="FOLDER"))


def published(position: int, name: str, text: str, **limits: Unpack[Limits]) -> Any:
    """A setting of fine-tuning, which the paper gives: section 4.1."""
    default = getattr(FinetuneConfig(), name)
    option = Option(help=spoken(text))
    return field(position, default, f"{text} (paper: {as_typed(default)}).", option=option, **limits)


def from_task(position: int, targets: str) -> Any:
    """:param targets: the tasks that start so."""
    text = f"{targets} from a model that is first fine-tuned on this task, e.g. mnli."
    return field(position, "", text, empty="from the checkpoint itself", option=Option(metavar="TASK"))


def rates(position: int) -> Any:
    return field(
        position,
        [],
        "Learning rates to try with seed 0; the one with the best dev score has all seeds, in place of the rate.",
        empty="none is tried",
        option=Option(metavar="LR,LR", read=learning_rates),
    )
