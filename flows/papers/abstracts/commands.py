"""What `gptmill abstracts` does with its options; everything heavy is imported after what can be checked without it."""

from __future__ import annotations

import argparse

from flows.cli.run import fill, print_tables, run, store_of
from flows.forms.readers import config_file
from gptcore.base.errors import InputError, require


def abstracts(options: argparse.Namespace) -> None:
    if options.action == "generate":
        _write_abstracts(options)
        return
    if options.title or options.model or options.seed is not None:
        raise InputError("--title, --model, --seed: expected `gptmill abstracts generate` before them")
    tables = options.action == "tables"
    if options.titles is not None and tables:
        raise InputError("--titles: nothing is written for tables; expected `gptmill abstracts` before it")
    require(tables or not options.only, "--only: expected `gptmill abstracts tables` before it")
    form = "AbstractsTablesParameters" if tables else "AbstractsParameters"
    filled = fill(f"flows.papers.abstracts.forms:{form}", options)
    from flows.papers.abstracts.flow import abstracts, abstracts_tables
    from flows.trainings.failures import CellsFailed

    try:
        made = run(abstracts_tables if tables else abstracts, filled, options)
    except CellsFailed as error:
        print_tables(error.tables)
        raise
    print_tables(made)


def _write_abstracts(options: argparse.Namespace) -> None:
    require(options.title, 'gptmill abstracts generate: found no --title, expected one or more: --title "..."')
    trained = ("arxiv", "checkpoint", "corpus", "categories", "beside", "titles", "only", "nproc", "jobs", "out")
    if odd := [name for name in trained if getattr(options, name)]:
        raise InputError(f"gptmill abstracts generate: --{odd[0]} says nothing to a model that is there")
    from flows.papers.abstracts.settings import chosen_sampling

    store = store_of(options)
    sampling = chosen_sampling(
        options.preset or "paper", {} if options.config is None else config_file(options.config), options.seed
    )
    from flows.papers.abstracts.write import write_abstracts

    for title, abstract in write_abstracts(store, options.model or None, options.title, sampling):
        print(f"{title}\n\n{abstract}\n")
