"""What `gptmill sweep` does with its options; everything heavy is imported after what can be checked without it."""

from __future__ import annotations

import argparse

from flows.cli.run import fill, run, store_of
from flows.forms.readers import toml_file


def sweep(options: argparse.Namespace) -> None:
    from flows.forms.references import pretrained_model
    from flows.papers.sweep.forms import sweep_on
    from gptcore.papers.sweep.plan import read_plan

    plan, store = toml_file(options.file, ""), store_of(options)
    table, _ = sweep_on(store, plan, pretrained_model(store, options.checkpoint) if options.checkpoint else None)
    read_plan(table, options.file, bool(options.checkpoint))  # its errors name the file
    filled = fill("flows.papers.sweep.forms:SweepParameters", options, {"sweep": plan})
    from flows.papers.sweep.flow import sweep

    print(run(sweep, filled, options).text(), end="")
