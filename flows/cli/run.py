"""How a command runs its flow: fill the form, see that what it names is there, start a server, run, print the result.

Everything heavy is imported where it is used, as for :mod:`flows.cli.commands`.
"""

from __future__ import annotations

import argparse
import gc as garbage
import os
import re
import shlex
import sys
from collections.abc import Callable, Iterable, Mapping
from functools import partial
from shutil import get_terminal_size
from textwrap import wrap
from typing import TYPE_CHECKING, Any, TypeVar

from flows.plugins import named
from flows.servers.environment import default_store
from gptcore.base.errors import InputError, nearest

AnyForm = TypeVar("AnyForm", bound="Form")

if TYPE_CHECKING:
    from flows.forms.fields import Form
    from tasks.report.analysis import Analysis
    from tasks.report.leaderboard import Leaderboard
    from tasks.store.store import Store


def run_flow(flow: str, form: str, prints: str, options: argparse.Namespace) -> None:
    """Fill a form, run its flow, and print the result.

    :param flow: "module:flow", imported once the form is found good.
    :param prints: what the result is: a board, tables, or an artifact, of which the address is printed.
    """
    filled = fill(form, options)
    chosen = named(flow)
    if prints == "board":
        from flows.trainings.failures import SomeFailed, SomeInputsBad
        from tasks.report.suites import kept_leaderboard

        try:
            board, page = run_board(chosen, filled, options)
        except (SomeFailed, SomeInputsBad) as error:  # after the board of the others is printed
            show_board(error.board, kept_leaderboard()[1])
            raise
        show_board(board, page)
    elif prints == "tables":
        print_tables(run(chosen, filled, options))
    else:
        artifact = run(chosen, filled, options)
        options.model = artifact.short
        print(artifact.url)


def wrapped(text: str, indent: int, end: str = "") -> str:
    """Text on lines that end at words and fit the terminal, or 80 columns; all but the first are indented.

    :param end: what stands at the end of all lines but the last.
    """
    width = get_terminal_size().columns - len(end)
    lines = wrap(text, width, subsequent_indent=" " * indent, break_long_words=False, break_on_hyphens=False)
    return f"{end}\n".join(lines)


def next_lines(commands: Iterable[tuple[str, str]], names: Mapping[str, object]) -> str:
    """What may follow a command, a line each; empty where nothing does.

    Where one is too long for a line, each stands alone, and what it is for below it.

    :param names: what stands in a command's brackets -> its value.
    """
    typed = [(command.format_map(names), text) for command, text in commands]
    width = max((len(command) for command, _ in typed), default=0)
    heads = ["next: ", *[" " * 6] * len(typed)]
    lines = [f"{head}{what:<{width}}  {text}" for head, (what, text) in zip(heads, typed, strict=False)]
    if max(map(len, lines), default=0) > get_terminal_size().columns:
        lines = []
        for head, (what, text) in zip(heads, typed, strict=False):
            words = " ".join(shlex.quote(word).replace(" ", "\0") for word in shlex.split(what))
            lines += [wrapped(head + words, 10, " \\").replace("\0", " "), " " * 10 + text]
    return "\n".join(lines)


def say_next(options: argparse.Namespace) -> None:
    """Say on standard error what may follow a command that is done, with the names that it takes."""
    default, _ = default_store()
    store = getattr(options, "store", None) or default
    given = {name: shlex.quote(value) for name, value in vars(options).items() if isinstance(value, str)}
    names = {**given, "store": "" if store == default else f" --store {shlex.quote(store)}"}
    if lines := next_lines(options.next, names):
        sys.stdout.flush()
        print(f"\n{lines}", file=sys.stderr)


def store_of(options: argparse.Namespace) -> Store:
    """The store that the options name, once the addresses among them are seen to be usable.

    :raises InputError: the first that is not; see :func:`flows.forms.checks.check_addresses`.
    """
    from flows.forms.checks import check_addresses

    return check_addresses(vars(options))


def fill(form: str, options: argparse.Namespace, given: Mapping[str, object] | None = None) -> Form:
    """The flow's form, filled from its fields' options; what it names is looked up, the servers are tried.

    Where no Prefect server is set, one of this process' own begins to start; the imports that follow are not searched
    for garbage (see :func:`run`).

    :param form: its name, as :func:`flows.forms.fields.form_named` takes it.
    :param given: values of fields that no option fills.
    :raises InputError: a value out of range, or something that is not there.
    """
    if sys.stderr.isatty():
        print(f"{options.command:<11} starts", file=sys.stderr)  # what follows takes a while to import

    from flows.forms.fields import flag_of, form_named, given_fields
    from flows.servers.environment import require_servers
    from flows.servers.temporary_server import begin_server
    from flows.trainings.worker_policy import worker_policy

    model, given = form_named(form), given or {}
    filled = validated(model, {**given_fields(model, options, besides=given), **given}, partial(flag_of, model))
    try:
        filled.check()
    except InputError as error:
        file, text = getattr(options, "config", None), str(error)
        if not file or not text.startswith("overrides"):
            raise
        raise InputError(f"--config {file}{text.removeprefix('overrides')}") from None  # which filled that field
    worker_policy()  # now, not when a training is due
    require_servers()
    begin_server()
    garbage.disable()
    return filled


def validated(model: type[AnyForm], values: Mapping[str, Any], called: Callable[[str], str] = str) -> AnyForm:
    """A form that holds these values.

    :param called: what messages call a field of this name.
    :raises InputError: the first value that it does not take.
    """
    from pydantic import ValidationError

    from flows.forms.readers import its_file

    try:
        return model.model_validate(values)
    except ValidationError as error:
        first = error.errors()[0]
        name = str(first["loc"][0])
        if first["type"] == "extra_forbidden":
            raise InputError(f"{name}: {nearest(name, model.model_fields)}") from None
        option = called(name)
        there = its_file(first["input"]) if name == "task" else ""
        raise InputError(f"{option}: found {first['input']!r}, {_expected(first)}{there}") from None


def _expected(error: Mapping[str, Any]) -> str:
    """What a field takes, of one of pydantic's errors."""
    limits = error.get("ctx", {})
    if error["type"] == "enum":
        return nearest(str(error["input"]), re.findall(r"'(.*?)'", limits["expected"]))
    words = {"ge": "{} or more", "gt": "more than {}", "le": "{} or less", "lt": "less than {}"}
    said = (f"expected {text.format(limits[name])}" for name, text in words.items() if name in limits)
    return next(said, re.sub("^Input should be (.*?)(, unable .*)?$", r"expected \1", error["msg"]))


def run(flow: Any, filled: Form, options: argparse.Namespace) -> Any:
    """Run a flow with its filled form on the Prefect server that is set, else on one of this process' own."""
    from flows.cli.display import shown
    from flows.servers.temporary_server import ensure_server, is_temporary
    from tasks.report.suites import kept_leaderboard
    from tasks.store.state import SERVED
    from tasks.tracking.tracker import Tracker

    with shown(options.command, options.verbose):
        try:
            _ = Tracker().client  # imported and opened while the server starts
            ensure_server()
        finally:
            garbage.freeze()  # what was imported until here stays: looking through it took a fifth of that time
            garbage.enable()
        from prefect import tags
        from prefect.settings import PREFECT_FLOWS_HEARTBEAT_FREQUENCY, temporary_settings

        from flows.servers.pools import INTERNAL

        # Nobody watches heartbeats on a server that goes with this process, and each flow would wait up to a second for
        # the thread that sends them. INTERNAL: automations on a server that is set see to it, should this one be lost.
        unwatched = {PREFECT_FLOWS_HEARTBEAT_FREQUENCY: None} if is_temporary() else {}
        with tags(INTERNAL), temporary_settings(unwatched):
            result = flow(filled)
        if not (tracker := Tracker()).served or SERVED in os.environ:
            kept_leaderboard(tracker)  # for the next who asks, as MLflow is at hand here
        return result


def run_board(flow: Any, filled: Form, options: argparse.Namespace) -> tuple[Leaderboard, str]:
    """Run a flow that fills the leaderboard: its board, and the words that lead to the page of all of it."""
    from tasks.report.suites import kept_leaderboard

    board: Leaderboard = run(flow, filled, options)
    row = next(row for row in board.rows if row.kind == "ours")
    options.model = row.suite[:6]
    options.task = getattr(options, "task", "") or [*row.own_tasks, *row.per_task][0]
    return board, kept_leaderboard()[1]


def show_board(board: Leaderboard, page: str, published: bool = False) -> None:
    from tasks.report.terminal import print_board

    print_board(board, published=published)
    print(f"\n{page}")


def print_tables(analyses: Iterable[Analysis]) -> None:
    for analysis in analyses:
        print(analysis.text())
