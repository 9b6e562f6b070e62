"""What `gptmill predict --explain` does with its options."""

from __future__ import annotations

import argparse
import sys

from flows.cli.run import store_of
from gptcore.base.errors import InputError, require


def predict_explained(options: argparse.Namespace) -> None:
    from flows.forms.references import named_task

    store = store_of(options)
    task = named_task(store, options.task, in_folder=bool(options.tokenizer))
    require(not options.file and not options.out, "--explain: found a file, expected JSON lines on standard input")
    if options.tokenizer or options.model:
        raise InputError("--explain: KagNET has its own model of the texts; expected no --model beside it")
    from flows.papers.graphs.explain import explain
    from gptcore.evaluation.tables import json_line

    for answer in explain(store, task, sys.stdin.buffer):
        print(json_line(answer), flush=True)
