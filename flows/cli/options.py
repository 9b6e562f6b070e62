"""The program's parser, made of `commands.toml`: a command's options are its forms' fields and its own arguments."""

from __future__ import annotations

import argparse
import re
import tomllib
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from itertools import groupby
from pathlib import Path
from string import Template
from typing import Any, NoReturn

from flows.cli.run import next_lines, run_flow
from flows.plugins import added, named, ordered
from flows.servers.environment import LIGHT_STORE, PORTS
from gptcore.base.errors import InputError, near, nearest

_TYPES = {"int": int, "float": float}
_IN_OUR_WORDS = {
    r"^argument ": "",
    r"invalid int value: (.*)": r"found \1, expected a whole number",
    r"invalid float value: (.*)": r"found \1, expected a number",
    r"expected (at least )?one argument": "found no value behind it, expected one",
    r"the following arguments are required: (.*)": r"found nothing for \1, expected a value",
    r"ignored explicit argument (.*)": r"found \1, expected no value",
}
"""What argparse says, and what is said here."""
_ADDRESSES = ("FILE", "FROM", "GRAPH", "REF", "TASK", "TASK|REF", "URL", "URL|DIGEST")
"""What stands for the value of an option that may be an address."""
_MAY_BE_BLANK = ("A,B", "CHARACTER", "COLUMN", "TEXT")
"""What stands for the value of an option that may be blanks alone."""
_VERBOSE = {"name": "--verbose", "help": "Prefect's own lines in place of a line a stage", "action": "store_true"}


@dataclass(frozen=True)
class Command:
    """A command as `commands.toml` or a plugin declares it; the head of that file says what each field means."""

    name: str
    text: str
    group: str = ""
    forms: tuple[str, ...] = ()
    flow: str = ""
    prints: str = ""
    calls: str = ""
    takes: tuple[str, ...] | None = None
    arguments: tuple[Mapping[str, Any], ...] = ()
    description: str = ""
    next: tuple[tuple[str, str], ...] = ()
    epilog: str | None = None
    after: str = ""
    below: tuple[Command, ...] = ()

    def call(self, options: argparse.Namespace) -> None:
        """Run the command with its parsed options: what it names is imported now."""
        for argument in self.arguments:
            if "calls" in argument and getattr(options, argument["name"].lstrip("-").replace("-", "_")):
                named(argument["calls"])(options)
                return
        if self.flow:
            run_flow(self.flow, self.forms[0], self.prints, options)
            return
        function = named(self.calls or f"flows.cli.commands:{self.name.replace('-', '_')}")
        function(*([options] if self.takes is None else [getattr(options, name) for name in self.takes]))


def read_commands() -> tuple[Command, ...]:
    """The core's commands and those of plugins, in the order of `gptmill --help`."""
    text = Path(__file__).with_name("commands.toml").read_text(encoding="utf-8")
    tables = tomllib.loads(Template(text).substitute(PORTS, store=LIGHT_STORE))
    shared, groups = tables.pop("shared"), tables.pop("groups")
    theirs = added("commands")
    names = ordered(tables, theirs)
    tables = {**theirs, **tables}
    for name, options in added("options").items():
        tables[name] = {**tables[name], "arguments": [*tables[name].get("arguments", ()), *options]}
    commands = (_command(name, {**tables[name], "group": groups[tables[name]["group"]]}, shared) for name in names)
    return tuple(sorted(commands, key=lambda command: [*groups.values()].index(command.group)))


def listed(commands: Iterable[Command]) -> str:
    """The commands and what each does, a line each, under the headings of their groups."""
    groups = groupby(commands, lambda command: command.group)
    lines = ([f"{group}:", *(f"  {command.name:<13}{command.text}" for command in inside)] for group, inside in groups)
    return "\n\n".join(map("\n".join, lines))


def _command(name: str, table: Mapping[str, Any], shared: Mapping[str, Any]) -> Command:
    arguments = tuple(shared[each] if isinstance(each, str) else each for each in table.get("arguments", ()))
    below = tuple(_command(other, inner, shared) for other, inner in table.get("below", {}).items())
    return Command(name, **{**table, "arguments": arguments, "below": below})


class Brief(argparse.RawDescriptionHelpFormatter):
    """A parser's help without its arguments, which its description lists."""

    def add_arguments(self, actions: Iterable[argparse.Action]) -> None:
        super().add_arguments(action for action in actions if action.option_strings)


class Parser(argparse.ArgumentParser):
    """A parser whose help keeps its lines, and whose errors are one line that says what may be meant."""

    def __init__(self, **settings: Any) -> None:
        layout = argparse.RawDescriptionHelpFormatter
        super().__init__(**{"formatter_class": layout, "allow_abbrev": False, **settings})  # --seed: no --seeds

    def error(self, message: str) -> NoReturn:
        """:raises InputError: always; argparse's own would print the usage and end the process."""
        for theirs, ours in _IN_OUR_WORDS.items():
            message = re.sub(theirs, ours, message)
        raise InputError(f"{message} (`{self.prog} --help` says more)")

    def parse_known_args(self, args: Any = None, namespace: Any = None) -> Any:
        """As argparse's, but what is not known is an error here, and not of the parser above this one."""
        first = next(iter(args), "")  # said before what it lets appear missing
        known = not first.startswith("-") or first.partition("=")[0] in self._option_string_actions
        found, unknown = super().parse_known_args(args, namespace) if known else (namespace, [first])
        if unknown:
            name = next((each for each in unknown if each.startswith("-")), unknown[0]).partition("=")[0]
            options = {option.lstrip("-"): option for option in self._option_string_actions}
            meant = options.get(near(name.lstrip("-"), options)) if name.startswith("-") else ""
            self.error(f"found {name}" + (f", did you mean {meant}?" if meant else ", expected no such thing"))
        return found, unknown

    def _check_value(self, action: argparse.Action, value: Any) -> None:
        if action.choices is None:
            blank = isinstance(value, str) and not value.strip() and action.metavar not in _MAY_BE_BLANK
            if blank and (value or action.required):  # '' asks for the default
                raise argparse.ArgumentError(action, f"found {value!r}, expected something that is not blank")
            return
        if value in action.choices:
            return
        if isinstance(action, argparse._SubParsersAction):  # too many to name
            meant = near(value, [*action.choices, *(() if " " in self.prog else ("help", "version"))])
            self.error(f"found no command {value!r}" + (f", did you mean {meant}?" if meant else ""))
        raise argparse.ArgumentError(action, f"found {value!r}, {nearest(str(value), map(str, action.choices))}")


class CommandParser(Parser):
    """A command's parser, which gets its options as the command is chosen: no other command's form is imported."""

    def __init__(self, *, command: Command, **settings: Any) -> None:
        followed = next_lines(command.next, {"task": "TASK", "model": "MODEL", "to": "FOLDER", "store": ""})
        epilog = "\n\n".join(filter(None, (command.epilog, followed)))
        super().__init__(description=command.description or command.text, epilog=epilog, **settings)
        self.set_defaults(run=command.call, next=command.next)
        self.command = command
        self._whole = False

    def complete(self) -> None:
        """Give the parser its options, where it has none yet."""
        if not self._whole:
            self._whole = True
            add_options(self, self.command)
            found = (action for action in self._actions if action.metavar in _ADDRESSES)
            self.set_defaults(addresses={each.dest: [*each.option_strings, each.metavar][0] for each in found})

    def parse_known_args(self, args: Any = None, namespace: Any = None) -> Any:
        self.complete()
        return super().parse_known_args(args, namespace)


def add_options(parser: argparse.ArgumentParser, command: Command) -> None:
    """Give a command's parser its options, and the commands that may follow it."""
    for argument in arguments_of(command):
        settings = {key: value for key, value in argument.items() if key not in ("names", "calls")}
        if settings.get("choices") == "analyses":
            from flows.analyses import analyses

            settings["choices"] = list(offered := analyses())
            told = "\n\n".join(f"{name}\n{analysis.described()}" for name, analysis in offered.items())
            parser.description = f"{parser.description}\n\n{told}"
        if (kind := settings.get("type")) in _TYPES:
            settings["type"] = _TYPES[kind]
        parser.add_argument(settings.pop("name"), **settings)
    if command.below:
        add_commands(parser.add_subparsers(metavar="|".join(each.name for each in command.below)), command.below)


def arguments_of(command: Command) -> Iterator[Mapping[str, Any]]:
    """Those of a command, in the order of its help; pydantic is imported where it fills a form."""
    if not command.forms:
        yield from command.arguments
        return
    from flows.forms.fields import form_named, options_of

    options = (option for form in command.forms for option in options_of(form_named(form)))
    found: dict[str, Mapping[str, Any]] = {}
    for option in options:
        found.setdefault(option.flag, option.argument())
    positional = [argument for argument in command.arguments if not argument["name"].startswith("--")]
    yield from positional
    yield from found.values()
    yield from (argument for argument in command.arguments if argument not in positional)
    yield _VERBOSE


def add_commands(subparsers: Any, commands: tuple[Command, ...]) -> None:
    for command in commands:
        subparsers.add_parser(command.name, help=command.text, command=command)
