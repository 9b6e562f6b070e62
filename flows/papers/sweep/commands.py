"""What `gptmill sweep` does with its options; everything heavy is imported after what can be checked without it."""

from __future__ import annotations

import argparse

from flows.cli.run import fill, run
from flows.forms.readers import toml_file
from gptcore.base.errors import InputError


def sweep(options: argparse.Namespace) -> None:
    try:
        filled = fill("flows.papers.sweep.forms:SweepParameters", options, {"sweep": toml_file(options.file, "")})
    except InputError as error:
        if not (text := str(error)).startswith("sweep"):
            raise
        raise InputError(f"{options.file}{text.removeprefix('sweep')}") from None  # which filled that field
    from flows.papers.sweep.flow import sweep

    print(run(sweep, filled, options).text(), end="")
