"""Completion of commands, options and names by the shell: a script that it reads once, made of the parser."""

from __future__ import annotations

import argparse
import zlib
from collections.abc import Sequence

import shtab

from flows.cli.main import parser
from flows.cli.options import CommandParser, arguments_of
from gptcore.nlu.origins import ORIGINS
from gptcore.nlu.registry import BEYOND, REGISTRY

_NAMES = {"tasks": [*(REGISTRY | BEYOND)], "names": [*ORIGINS, "all"]}
"""Names that an argument takes which no form has."""
_PATHS = {"FILE", "FOLDER", "URL", "REF", "GRAPH", "TASK"}
"""What stands for a value that may be a file or a folder."""


def print_completion(shell: str) -> None:
    made = parser()
    _prepare(made)
    print(shtab.complete(made, shell))


def _prepare(made: argparse.ArgumentParser) -> None:
    """Give a parser, and those below it, their options, and tell shtab what may stand behind each."""
    if isinstance(made, CommandParser):
        made.complete()
        there = {argument["name"]: argument for argument in arguments_of(made.command)}
        for action in made._actions:
            argument = there.get((action.option_strings or [action.dest])[-1], {})
            value = str(argument.get("metavar", "")).split("|")
            kind = "tasks" if "TASK" in value else action.dest
            action.choices = action.choices or argument.get("names") or _NAMES.get(kind)
            if _PATHS & {*value}:
                action.complete = _names_or_paths(list(action.choices or []))  # type: ignore[attr-defined]  # of shtab
    for action in made._actions:
        if isinstance(action, argparse._SubParsersAction):
            for below in action.choices.values():
                _prepare(below)


def _names_or_paths(names: Sequence[str]) -> shtab.CompleteType:
    """Shell -> its words for files and folders; where there are names, for these, TOML files and folders."""
    words = " ".join(names)
    if not words:
        return shtab.FILE
    function = f"_gptmill_name_or_file_{zlib.crc32(words.encode()):08x}"
    found = f"""compgen -W '{words}' -- "$1"; compgen -f -X '!*.toml' -- "$1"; compgen -d -- "$1\""""
    bash = f"{function}() {{\n  {found}\n}}"
    fish, zsh = f"{words} (__fish_complete_suffix .toml)", f"{{compadd {words}; _files -g '*.toml'}}"
    return {"bash": function, "zsh": zsh, "fish": fish, "preamble": {"bash": bash}}
