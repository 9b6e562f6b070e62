"""What each command does with its options: fill a form, run a flow, print the result.

Everything heavy is imported where it is used, and after what can be checked without it, so that neither `gptmill
--help` nor a typing error takes a second.
"""

from __future__ import annotations

import argparse
import os
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Any

from flows.cli.run import fill, run, run_and_print, run_board, show_board
from flows.forms.readers import config_file, listed, task_name, task_names, toml_file
from gptcore.base.errors import InputError

if TYPE_CHECKING:
    from collections.abc import Iterable

    from tasks.report.analysis import Analysis
    from tasks.store.store import Store

_MOST_HOURS = 1_000_000  # more than a hundred years: older than any store, and still a date


def pipeline(options: argparse.Namespace) -> None:
    filled = fill("PipelineParameters", options)
    from flows.pipeline import pipeline

    run_and_print(pipeline, filled, options)


def pretrain(options: argparse.Namespace) -> None:
    filled = fill("PretrainParameters", options)
    from flows.pretrain import pretrain

    print(run(pretrain, filled, options).url)


def finetune(options: argparse.Namespace) -> None:
    filled = fill("FinetuneParameters", options, **({"lm_coef": 0.0} if options.no_aux_lm else {}))
    from flows.finetune import finetune
    from gptcore.nlu.own_task import is_task_file, own_task_name

    board, page = run_board(finetune, filled, options)
    task = own_task_name(options.task) if is_task_file(options.task) else options.task
    show_board(board.only([task]), page)


def finetune_all(options: argparse.Namespace) -> None:
    filled = fill("FinetuneAllParameters", options)
    from flows.finetune import finetune_all

    run_and_print(finetune_all, filled, options)


def distil(options: argparse.Namespace) -> None:
    filled = fill("DistilParameters", options)
    from flows.distil import distil

    run_and_print(distil, filled, options)


def evaluate(options: argparse.Namespace) -> None:
    from flows.cli.scoring import evaluate, rows_scored
    from flows.forms.checks import check_addresses

    store = check_addresses(vars(options))
    task = task_name(options.task)
    for split, scores in evaluate(store, task, options.model, options.datasets).items():
        print(f"{options.task} {split}: " + "  ".join(f"{name} {_number(value)}" for name, value in scores.items()))
    print(rows_scored(store, options.datasets, task))


def zero_shot(options: argparse.Namespace) -> None:
    from flows.cli.scoring import rows_scored, zero_shot
    from flows.forms.checks import check_addresses

    store = check_addresses(vars(options))
    if options.max_rows is not None and options.max_rows < 1:
        raise InputError(f"--max-rows: found {options.max_rows}, expected 1 or more")
    tasks = listed(options.tasks)
    results = zero_shot(store, options.checkpoint, options.datasets, tasks, options.max_rows)
    width = max(6, *map(len, results))
    for task, scores in results.items():
        print(f"{task:<{width}} " + "  ".join(f"{name} {_number(value)}" for name, value in scores.items()))
    print(rows_scored(store, options.datasets))


_ANALYSES_OWN = {"students": "StudentsParameters", "distillation": "DistillationParameters"}
"""The forms of analyses that look up more, or less, than the others; all have the same fields."""


def analysis(options: argparse.Namespace) -> None:
    filled = fill(_ANALYSES_OWN.get(options.name, "AnalysisParameters"), options)
    from flows.analysis import ANALYSES

    for found in run(ANALYSES[options.name], filled, options):
        print(found.text())


def knowledge(options: argparse.Namespace) -> None:
    filled = fill("KnowledgeParameters", options)
    from flows.knowledge import knowledge

    _print_all(run(knowledge, filled, options))


def reason(options: argparse.Namespace) -> None:
    filled = fill("ReasonParameters", options)
    from flows.reason import reason

    _print_all(run(reason, filled, options))


def sweep(options: argparse.Namespace) -> None:
    from gptcore.sweep.plan import read_plan

    plan = toml_file(options.file, "")
    read_plan(plan, options.file, bool(options.checkpoint))  # its errors name the file
    filled = fill("SweepParameters", options, sweep=plan)
    from flows.sweep import sweep

    print(run(sweep, filled, options).text(), end="")


def abstracts(options: argparse.Namespace) -> None:
    if options.action == "generate":
        _write_abstracts(options)
        return
    if options.title or options.model or options.seed is not None:
        raise InputError("--title, --model, --seed: expected `gptmill abstracts generate` before them")
    tables = options.action == "tables"
    if options.titles is not None and tables:
        raise InputError("--titles: nothing is written for tables; expected `gptmill abstracts` before it")
    if options.only and not tables:
        raise InputError("--only: expected `gptmill abstracts tables` before it")
    form, section = ("AbstractsTablesParameters", "star") if tables else ("AbstractsParameters", "adapt")
    filled = fill(form, options)
    from flows.forms.generation import OnPapers
    from flows.forms.generation_checks import check_blocks

    assert isinstance(filled, OnPapers)
    check_blocks(filled, section)
    from flows.abstracts import abstracts, abstracts_tables
    from flows.failures import CellsFailed

    try:
        made = run(abstracts_tables if tables else abstracts, filled, options)
    except CellsFailed as error:
        _print_all(error.tables)
        raise
    _print_all(made)


def _print_all(analyses: Iterable[Analysis]) -> None:
    for analysis in analyses:
        print(analysis.text())


def _write_abstracts(options: argparse.Namespace) -> None:
    from flows.forms.checks import check_addresses
    from flows.forms.settings import chosen_sampling
    from flows.inference import write_abstracts

    if not options.title:
        raise InputError('gptmill abstracts generate: found no --title, expected one or more: --title "..."')
    trained = ("arxiv", "checkpoint", "corpus", "categories", "beside", "titles", "only", "nproc", "jobs", "out")
    if odd := [name for name in trained if getattr(options, name)]:
        raise InputError(f"gptmill abstracts generate: --{odd[0]} says nothing to a model that is there")
    store = check_addresses(vars(options))
    sampling = chosen_sampling(
        options.preset or "paper", {} if options.config is None else config_file(options.config), options.seed
    )
    for title, abstract in write_abstracts(store, options.model or None, options.title, sampling):
        print(f"{title}\n\n{abstract}\n")


def few_shot(options: argparse.Namespace) -> None:
    filled = fill("FewShotParameters", options)
    from flows.few_shot import few_shot

    for found in run(few_shot, filled, options):
        print(found.text())


def leaderboard(options: argparse.Namespace) -> None:
    from tasks.report.cache import kept_leaderboard

    board, page = kept_leaderboard()
    if options.format == "csv":
        print(board.render("csv"))
    elif options.format == "table" and not options.wide:
        show_board(board, page, options.published)
    else:
        print((board if options.published else board.beside_the_paper()).render(options.format))
        print(f"\n{page}")


def encode(options: argparse.Namespace) -> None:
    import json

    from gptcore.text.tokenizer import Tokenizer

    tokenizer = Tokenizer.load(options.tokenizer)
    text = sys.stdin.buffer
    if options.whole:
        print(json.dumps(tokenizer.encode(_decoded(text.read(), 1))))
        return
    for number, line in enumerate(text, start=1):
        print(json.dumps(tokenizer.encode(_decoded(line, number).rstrip("\r\n"))))


def gc(options: argparse.Namespace) -> None:
    if not 0 <= options.older_than <= _MOST_HOURS:
        raise InputError(f"--older-than: found {options.older_than:g}, expected hours, 0 to {_MOST_HOURS:,}")
    from flows.cli.garbage import gc
    from tasks.store.store import Store

    gc(Store(options.store), options.yes, options.older_than, options.all_unreferenced)


def datasets(options: argparse.Namespace) -> None:
    from flows.cli.datasets import list_datasets

    list_datasets(options.datasets)


def check_task(options: argparse.Namespace) -> None:
    from flows.cli.own_task import check_task

    check_task(task_name(options.file), options.datasets)


def get_datasets(options: argparse.Namespace) -> None:
    from flows.cli.datasets import get_datasets

    get_datasets(options.names, options.to, options.mirror)


def export(options: argparse.Namespace) -> None:
    out = Path(options.out)
    if not options.out or "://" in options.out:
        raise InputError(f"--out: found {options.out!r}, expected a new folder on this machine")
    if out.exists():
        raise InputError(f"--out {out}: is there already; expected a new folder")
    holder = next(folder for folder in out.absolute().parents if folder.exists())
    if not holder.is_dir() or not os.access(holder, os.W_OK):
        raise InputError(f"--out {out}: found no folder at {holder} that can be written, expected one")
    store = _look_up_model(options)
    from flows.inference import export

    for line in export(store, options.model, options.format, options.out, options.tokenizer, options.int8):
        print(line)


def predict(options: argparse.Namespace) -> None:
    import json

    from flows.forms.checks import check_addresses
    from flows.forms.references import named_task

    store = check_addresses(vars(options))
    task = named_task(store, options.task, in_folder=bool(options.tokenizer))
    if options.explain and (options.tokenizer or options.model):
        raise InputError("--explain: KagNET has its own model of the texts; expected no --model beside it")
    if not options.explain:
        if not options.model:
            raise InputError("--model: found none, expected a REF, or --explain")
        _look_up_model(options, task)
    from flows.inference import explain, predict

    lines = sys.stdin.buffer
    answers = (
        explain(store, task, lines)
        if options.explain
        else predict(store, task, options.model, lines, options.tokenizer)
    )
    for answer in answers:
        print(json.dumps(answer, ensure_ascii=False), flush=True)


def serve(options: argparse.Namespace) -> None:
    from flows.cli.serve import serve
    from flows.forms.checks import check_addresses

    serve(check_addresses(vars(options)), options.name, options.model, options.port)


def perplexity(options: argparse.Namespace) -> None:
    store = _look_up_model(options)
    from flows.inference import perplexity

    found = perplexity(store, options.model, sys.stdin.buffer, options.tokenizer)
    print("  ".join(f"{name} {_number(value)}" for name, value in found.items()))


def generate(options: argparse.Namespace) -> None:
    import json

    from gptcore.evaluation.sampling import check_sampling

    check_sampling(options.max_tokens, options.temperature, options.top_k, options.top_p)
    store = _look_up_model(options)
    from flows.inference import generate, generate_lines

    model = store, options.model
    settings = {name: getattr(options, name) for name in ("max_tokens", "temperature", "top_k", "top_p", "seed")}
    if options.prompt is None:
        for answer in generate_lines(*model, sys.stdin.buffer, options.tokenizer, **settings):
            print(json.dumps(answer, ensure_ascii=False), flush=True)
        return
    pieces = generate(*model, options.prompt, options.tokenizer, **settings)
    print(options.prompt, end="", flush=True)
    for piece in pieces:
        print(piece, end="", flush=True)
    print()


def submission(options: argparse.Namespace) -> None:
    from flows.cli.submission import submission
    from flows.forms.checks import check_addresses

    store = check_addresses(vars(options))
    tasks = task_names(options.tasks)
    report = submission(store, options.checkpoint, options.out, options.datasets, tasks)
    for name, counts in report["files"].items():
        print(f"{name:<12} {counts['rows']:>7} rows")
    for task, url in report["models"].items():
        print(f"{task:<12} {url}")
    for note in report["notes"]:
        print(f"note: {note}")
    print(options.out if report["complete"] else f"{options.out}: a rehearsal, not for the server")


def _look_up_model(options: argparse.Namespace, task: str = "") -> Store:
    """See that ``--model`` is there, before torch is imported.

    :return: the store that was looked into.
    :raises InputError: there is no such model.
    """
    from flows.forms.checks import any_model, check_address, check_addresses
    from flows.forms.references import fine_tuned_model, in_store

    store = check_addresses(vars(options))
    if options.tokenizer:
        return store  # the model is a folder: whoever loads it says what is wrong with it
    if task:
        model = in_store(store, options.model, ("finetune",))
        check_address(model, ("finetune",))
        fine_tuned_model(store, model, task)
    else:
        any_model(store, options.model)
    return store


def _decoded(line: bytes, number: int) -> str:
    try:
        return line.decode("utf-8")
    except UnicodeDecodeError as error:
        raise InputError(f"standard input, line {number}: byte {error.start} is not UTF-8 ({error.reason})") from None


def _number(value: Any) -> str:
    return f"{value:.4f}" if isinstance(value, float) else str(value)
