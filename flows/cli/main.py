"""The command line: `gptmill COMMAND`. Exit codes: 0 done, 1 failed, 2 bad usage or input, 130 Ctrl-C, 143 SIGTERM."""

from __future__ import annotations

import argparse
import errno
import os
import sys
import traceback
from collections.abc import Iterable, Sequence
from contextlib import suppress
from pathlib import Path

from flows.cli.options import Brief, CommandParser, Parser, add_commands, listed, read_commands
from flows.cli.run import say_next, wrapped
from flows.servers import environment, signals
from gptcore import __version__
from gptcore.base.addresses import unsigned, without_password
from gptcore.base.errors import InputError, unwritable
from gptcore.base.files import ROOM, free_bytes, is_full, require_room
from tasks.store.state import make_private, state_folder

_ABOUT = "GPT, BERT and their kin: from raw books to a leaderboard of language tasks."


def main(arguments: Sequence[str] | None = None) -> int:
    """Parse, run, and turn what happened into an exit code."""
    options = argparse.Namespace(debug=False)
    try:
        with signals.polite_end(program=arguments is None):
            if arguments is None:
                begin_ahead(sys.argv[1:])
            words = understood(sys.argv[1:] if arguments is None else arguments)
            options = parser().parse_args([_recordable(word) for word in words])
            client = options.command not in ("up", "down", "status")
            told = (InputError, OSError) if options.command == "doctor" else ()  # by itself, a line each
            with suppress(*told):
                environment.prepare(client)
            if client and getattr(options, "store", "") is None:
                options.store, note = environment.default_store()
                print(note, end="", file=sys.stderr, flush=True)
            if client or not getattr(options, "full", True):  # whose own S3 server is yet to start
                try_addresses(options)
            options.run(options)
            with suppress(*told):
                make_private()  # what was made meanwhile, too
            say_next(options)
            sys.stdout.flush()
    except InputError as error:
        _say(f"gptmill: error: {without_password(str(error))}")
        return 2
    except BrokenPipeError:
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())  # `gptmill ... | head`: the reader has enough
    except signals.Ended as ended:
        print(ended.farewell, file=sys.stderr)
        return ended.exit_code
    except Exception as error:
        if isinstance(error, OSError) and error.errno == errno.ENAMETOOLONG:
            name = os.path.basename(error.filename)
            found = f"found a name of {len(name):,} characters, {name[:40]!r} at its beginning"
            _say(f"gptmill: error: {found}, expected a shorter one")
            return 2
        places = (getattr(options, each, None) or "" for each in ("store", "to"))
        reason = unwritten(error, [state_folder(), *map(Path, places)])
        reason = reason or f"{type(error).__name__}: {without_password(str(error))}"
        _say(f"gptmill: failed: {reason}")
        if options.debug:
            print(without_password(traceback.format_exc()), end="", file=sys.stderr)
        return 1
    return 0


def _say(line: str) -> None:
    """Print a line on standard error; a terminal gets it on as many as it takes, broken between words."""
    print(wrapped(line, 2) if sys.stderr.isatty() else line, file=sys.stderr)


def understood(typed: Sequence[str]) -> Sequence[str]:
    """What is typed, with `help COMMAND` and `version` as the options that they stand for."""
    if typed[:1] == ["help"]:
        return [*typed[1:], "--help"]
    return ["--version", *typed[1:]] if typed[:1] == ["version"] else typed


def begin_ahead(typed: Sequence[str]) -> None:
    """Begin a Prefect server for a command that runs a flow, before the imports of its options: it is ready sooner.

    :param typed: what follows the program's name; where it turns out wrong the server ends with this process.
    """
    chosen = next((word for word in typed if not word.startswith("-")), "")
    flows = {command.name for command in read_commands() if command.forms}
    if chosen in flows and not {"-h", "--help"}.intersection(typed):
        from flows.servers.temporary_server import begin_server

        require_room(state_folder())
        environment.prepare()
        begin_server()


def try_addresses(options: argparse.Namespace) -> None:
    """Check that the servers behind the options' addresses answer, before any of them is looked at.

    :raises InputError: naming the first option whose server does not.
    """
    for name, option in options.addresses.items():
        given = getattr(options, name)
        for address in given if isinstance(given, list) else [given]:
            if "://" in (address or ""):
                from gptcore.base.filesystems import require_address  # brings fsspec along: not for `--help`

                require_address(address, option)


def _recordable(word: str) -> str:
    """A word of the command line, of which an address loses its signature; text with blanks is no address."""
    option, equals, value = word.partition("=") if word.startswith("--") else ("", "", word)
    return word if " " in word else f"{option}{equals}{unsigned(value)}"


def parser() -> argparse.ArgumentParser:
    """The program's own parser: a table of commands, each of which gets its options once it is chosen."""
    commands = read_commands()
    made = Parser(
        prog="gptmill",
        description=f"{_ABOUT}\n\n{listed(commands)}",
        epilog="`gptmill COMMAND --help` says what a command does and what it takes.",
        formatter_class=Brief,
    )
    made.add_argument("--version", action="version", version=f"gptmill {__version__}")
    made.add_argument("--debug", action="store_true", help="show the traceback of a failure")
    found = made.add_subparsers(required=True, metavar="COMMAND", dest="command", parser_class=CommandParser)
    add_commands(found, commands)
    return made


def unwritten(error: BaseException, places: Iterable[Path]) -> str | None:
    """One line where ``error`` comes from a place that takes no more bytes; else None.

    :param places: folders that are written to, for an error that names none: a server's database that could not grow is
        only an error 500 here.
    """
    reason, where = unwritable(error) or ("", "")
    if not where and (full := next((place for place in places if is_full(place)), None)):
        reason, where = "no space left on the disk", str(full)
    if not reason:
        return None
    if where:
        free = f" ({free_bytes(Path(where)) / 1e6:.1f} MB free, {ROOM / 1e6:.0f} MB or more needed)"
        reason += f" of {where}{free if reason.endswith('disk') else ''}"
    do = "mount it writable" if "read-only" in reason else "free some"
    return f"{reason}; {do}, and the same command goes on from here"
