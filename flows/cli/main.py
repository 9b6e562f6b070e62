"""The command line: `gptmill COMMAND`. Exit codes: 0 done, 1 failed, 2 bad usage or input, 130 Ctrl-C, 143 SIGTERM."""

from __future__ import annotations

import argparse
import os
import sys
import traceback
from collections.abc import Sequence
from pathlib import Path

from flows.cli.disk_space import lack_of_space
from flows.cli.options import CommandParser, add_commands
from flows.cli.table import COMMANDS
from flows.servers import environment, signals
from gptcore import __version__
from gptcore.base.errors import InputError, without_password
from tasks.store.state import state_folder


def main(arguments: Sequence[str] | None = None) -> int:
    """Parse, run, and turn what happened into an exit code."""
    options = argparse.Namespace(debug=False)
    try:
        with signals.polite_end(program=arguments is None):
            options = parser().parse_args(arguments)
            environment.prepare(client=options.command not in ("up", "down", "status"))
            options.run(options)
            sys.stdout.flush()
    except InputError as error:
        print(f"gptmill: error: {without_password(str(error))}", file=sys.stderr)
        return 2
    except BrokenPipeError:
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())  # `gptmill ... | head`: the reader has enough
    except signals.Ended as ended:
        print(ended.farewell, file=sys.stderr)
        return ended.exit_code
    except Exception as error:
        reason = lack_of_space(error, [state_folder(), Path(getattr(options, "store", None) or "")])
        reason = reason or f"{type(error).__name__}: {without_password(str(error))}"
        print(f"gptmill: failed: {reason}", file=sys.stderr)
        if options.debug:
            print(without_password(traceback.format_exc()), end="", file=sys.stderr)
        return 1
    return 0


def parser() -> argparse.ArgumentParser:
    """The program's own parser: a table of commands, each of which gets its options once it is chosen."""
    made = argparse.ArgumentParser(
        prog="gptmill",
        description="GPT, BERT and their kin: from raw books to a leaderboard of language-understanding tasks.",
    )
    made.add_argument("--version", action="version", version=f"gptmill {__version__}")
    made.add_argument("--debug", action="store_true", help="show the traceback of a failure")
    found = made.add_subparsers(required=True, metavar="COMMAND", dest="command", parser_class=CommandParser)
    add_commands(found, COMMANDS)
    return made


if __name__ == "__main__":
    sys.exit(main())
