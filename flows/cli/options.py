"""A command of the command line, declared: its options are its forms' fields, and what it has of its own."""

from __future__ import annotations

import argparse
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any


@dataclass(frozen=True)
class Argument:
    """An option, or an argument without a name: what ``ArgumentParser.add_argument`` is given."""

    name: str
    settings: dict[str, Any]

    def add_to(self, parser: argparse.ArgumentParser) -> None:
        parser.add_argument(self.name, **self.settings)


def argument(name: str, help: str | None = None, **settings: Any) -> Argument:
    """An argument of a command that is in no form; a default that is worth saying is said by its text."""
    return Argument(name, {"help": help, **settings})


def flag(name: str, help: str) -> Argument:
    """An option that is given or not."""
    return Argument(name, {"help": help, "action": "store_true"})


@dataclass(frozen=True)
class Command:
    """A command: what it is called, what it does, its line of help, and its options.

    :param forms: names of the forms (:mod:`flows.forms.named`) that the command fills. Each of their fields makes
        an option (of fields that share an option, the first form's), before the command's own arguments.
    :param first: own arguments that come before those of the forms.
    :param defaults: of attributes of the parsed options, in place of those that the options have.
    :param below: commands that may follow this one's name.
    """

    name: str
    run: Callable[[argparse.Namespace], None]
    text: str
    forms: tuple[str, ...] = ()
    arguments: tuple[Argument, ...] = ()
    first: tuple[Argument, ...] = ()
    description: str = ""
    epilog: str | None = None
    defaults: dict[str, Any] = field(default_factory=dict)
    below: tuple[Command, ...] = ()


class CommandParser(argparse.ArgumentParser):
    """A command's parser, which gets its options as the command is chosen: no other command's form is imported."""

    def __init__(self, *, command: Command, **settings: Any) -> None:
        layout = argparse.RawDescriptionHelpFormatter if command.epilog else argparse.HelpFormatter
        text = command.description or command.text
        super().__init__(description=text, epilog=command.epilog, formatter_class=layout, **settings)
        self.set_defaults(run=command.run)
        self._waiting: Command | None = command

    def parse_known_args(self, args: Any = None, namespace: Any = None) -> Any:
        """As argparse's, which the parser above this one calls."""
        if self._waiting is not None:
            command, self._waiting = self._waiting, None
            add_options(self, command)
        return super().parse_known_args(args, namespace)


def add_options(parser: argparse.ArgumentParser, command: Command) -> None:
    """Give a command's parser its options."""
    for own in command.first:
        own.add_to(parser)
    for option in form_arguments(command.forms):
        option.add_to(parser)
    for own in command.arguments:
        own.add_to(parser)
    parser.set_defaults(**command.defaults)
    if command.below:
        add_commands(parser.add_subparsers(metavar="|".join(each.name for each in command.below)), command.below)


def form_arguments(forms: tuple[str, ...]) -> list[Argument]:
    """The options of forms, by their names; pydantic is imported where there is one."""
    if not forms:
        return []
    from flows.forms.named import form_named
    from flows.forms.option import options_of

    found: dict[str, Argument] = {}
    for form in forms:
        for option in options_of(form_named(form)):
            found.setdefault(option.flag, Argument(*option.argument()))
    return list(found.values())


def add_commands(subparsers: Any, commands: tuple[Command, ...]) -> None:
    """Give each command its parser, whose options come later."""
    for command in commands:
        subparsers.add_parser(command.name, help=command.text, command=command)
