"""The program's parser, made of `commands.toml`: a command's options are its forms' fields and its own arguments."""

from __future__ import annotations

import argparse
import tomllib
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from string import Template
from textwrap import fill
from typing import Any

from flows.cli import commands
from flows.cli.run import call, run_flow
from flows.servers.environment import LIGHT_STORE, PORTS

_TYPES = {"int": int, "float": float}
_VERBOSE = {"name": "--verbose", "help": "Prefect's own lines in place of a line a stage", "action": "store_true"}


@dataclass(frozen=True)
class Command:
    """A command as `commands.toml` declares it; the head of that file says what each field means."""

    name: str
    text: str
    forms: tuple[str, ...] = ()
    flow: str = ""
    prints: str = ""
    calls: str = ""
    run: str = ""
    arguments: tuple[Mapping[str, Any], ...] = ()
    description: str = ""
    epilog: str | None = None
    below: tuple[Command, ...] = ()

    @property
    def called(self) -> Callable[[argparse.Namespace], None]:
        """What is done with the parsed options."""
        if self.flow:
            return partial(run_flow, self.flow, self.forms[0], self.prints)
        if self.calls:
            return partial(call, self.calls)
        found: Callable[[argparse.Namespace], None] = getattr(commands, self.run or self.name.replace("-", "_"))
        return found


def read_commands() -> tuple[Command, ...]:
    """Every command, in the order of `gptmill --help`."""
    text = Path(__file__).with_name("commands.toml").read_text(encoding="utf-8")
    tables = tomllib.loads(Template(text).substitute(PORTS, store=LIGHT_STORE))
    shared = tables.pop("shared")
    return tuple(_command(name, table, shared) for name, table in tables.items())


def _command(name: str, table: Mapping[str, Any], shared: Mapping[str, Any]) -> Command:
    arguments = tuple(shared[each] if isinstance(each, str) else each for each in table.get("arguments", ()))
    below = tuple(_command(other, inner, shared) for other, inner in table.get("below", {}).items())
    return Command(name, **{**table, "arguments": arguments, "below": below})


class CommandParser(argparse.ArgumentParser):
    """A command's parser, which gets its options as the command is chosen: no other command's form is imported."""

    def __init__(self, *, command: Command, prog: str | None = None) -> None:
        layout = argparse.RawDescriptionHelpFormatter if command.epilog else argparse.HelpFormatter
        text = command.description or command.text
        super().__init__(description=text, epilog=command.epilog, formatter_class=layout, prog=prog)
        self.set_defaults(run=command.called)
        self._waiting: Command | None = command

    def parse_known_args(self, args: Any = None, namespace: Any = None) -> Any:
        """As argparse's, which the parser above this one calls."""
        if self._waiting is not None:
            command, self._waiting = self._waiting, None
            add_options(self, command)
        return super().parse_known_args(args, namespace)


def add_options(parser: argparse.ArgumentParser, command: Command) -> None:
    """Give a command's parser its options, and the commands that may follow it."""
    for argument in _arguments(command):
        settings = dict(argument)
        if settings.get("choices") == "analyses":
            from flows.analysis import analyses

            settings["choices"] = list(found := analyses())
            parser.formatter_class = argparse.RawDescriptionHelpFormatter
            parser.epilog = "\n".join(
                fill(analysis.text, 100, initial_indent=f"{name:14}", subsequent_indent=" " * 14) or name
                for name, analysis in found.items()
            )
        if (kind := settings.get("type")) in _TYPES:
            settings["type"] = _TYPES[kind]
        parser.add_argument(settings.pop("name"), **settings)
    if command.below:
        add_commands(parser.add_subparsers(metavar="|".join(each.name for each in command.below)), command.below)


def _arguments(command: Command) -> Iterator[Mapping[str, Any]]:
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
    """Give each command its parser, whose options come later."""
    for command in commands:
        subparsers.add_parser(command.name, help=command.text, command=command)
