"""What each command does with its options, where that is more than to run a flow or to call a function with them.

Everything heavy is imported where it is used, and after what can be checked without it, so that neither `gptmill
--help` nor a typing error takes a second.
"""

from __future__ import annotations

import argparse
import os
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

from flows.cli.run import fill, print_tables, run, run_board, run_flow, show_board, store_of
from flows.forms.readers import listed, task_name, task_names
from gptcore.base.errors import InputError, require

if TYPE_CHECKING:
    from tasks.store.store import Store


# --- what trains


def pipeline_on(options: argparse.Namespace) -> None:
    """Run the chain of a model that is there, without what a pre-training alone needs."""
    from flows.forms.fields import form_named, options_of

    taken = {option.key for option in options_of(form_named("FinetuneAllParameters"))}
    for option in options_of(form_named("PipelineParameters")):
        if option.key not in taken and getattr(options, option.key) not in (None, False):
            raise InputError(f"{option.flag}: nothing is pre-trained with --checkpoint; expected no such option")
    run_flow("flows.pipeline:pipeline_on", "FinetuneAllParameters", "board", options)


def import_model(options: argparse.Namespace) -> None:
    store = store_of(options)
    from flows.cli.models import imported
    from tasks.store.counts import ImportedCounts

    artifact = imported(store, options.source, options.name)
    options.model = ImportedCounts.of(store, artifact).name or artifact.short
    print(artifact.url)


def pretrain(options: argparse.Namespace) -> None:
    if not options.manifest:
        run_flow("flows.pretrain:pretrain", "PretrainParameters", "address", options)
        return
    filled = fill("PretrainParameters", options)
    from flows.pretrain import asked_for
    from tasks.stages.pretrain import pretrain_on_hosts

    print(run(lambda form: pretrain_on_hosts(asked_for(form.request), options.manifest), filled, options), end="")
    options.next = ()


def finetune(options: argparse.Namespace) -> None:
    from gptcore.nlu.own_task import is_task_file, own_task_name

    task = own_task_name(options.task) if is_task_file(options.task) else options.task
    filled = fill("FinetuneParameters", options, {"lm_coef": 0.0} if options.no_aux_lm else None)
    from flows.finetune import finetune

    board, page = run_board(finetune, filled, options)
    show_board(board.only([task]), page)


def analysis(options: argparse.Namespace) -> None:
    from flows.analyses import analyses

    chosen = analyses()[options.name]
    filled = fill(chosen.form, options)
    print_tables(run(chosen.load(), filled, options))


# --- what looks at models and boards


_OF_HARNESS = ("include_path", "num_fewshot", "limit")


def evaluate(options: argparse.Namespace) -> None:
    from flows.forms.references import named_task

    for name in _OF_HARNESS:
        given = getattr(options, name) in ("", None)
        require(given, f"--{name.replace('_', '-')}: found no --harness beside it, expected its tasks")
    require(options.task, "TASK: found none, expected a task's name or its file, or --harness")
    named = named_task(store_of(options), options.task)
    task = options.task if options.file else task_name(options.task)
    store = _look_up_model(options, named)
    if options.file:
        require(not options.datasets, f"--datasets: {options.file} is scored; expected none beside it")
        from flows.cli.files import check_table

        check_table(store, options.model, options.file)
        from flows.inference import score_table

        scores = score_table(store, named, options.model, options.file)
        print(f"{options.file}: {_shown(scores, 1)}")
        return
    from flows.cli.models import evaluate, rows_scored

    for split, scores in evaluate(store, task, options.model, options.datasets).items():
        print(f"{options.task} {split}: {_shown(scores, 1)}")
    print(rows_scored(store, options.datasets, task))


def evaluate_harness(options: argparse.Namespace) -> None:
    """Score a pre-trained model by lm-evaluation-harness."""
    store, names = store_of(options), listed(options.harness)
    require(not options.task, f"--harness: found {options.task} beside it, expected no TASK")
    for name, least in (("num_fewshot", 0), ("limit", 1)):
        value = getattr(options, name)
        found = f"--{name.replace('_', '-')}: found {value}, expected {least} or more"
        require(value is None or value >= least, found)
    from flows.cli.models import harness

    results = harness(store, options.model or "latest", names, *(getattr(options, name) for name in _OF_HARNESS))
    width = max(map(len, results))
    for task, result in results.items():
        scores = {name.removesuffix(",none"): value for name, value in sorted(result["results"].items()) if "," in name}
        print(f"{task:<{width}} {_shown({**scores, 'rows': result['results'].get('sample_len', 0)})}")


def zero_shot(options: argparse.Namespace) -> None:
    from flows.cli.models import rows_scored, zero_shot

    store, most, tasks = store_of(options), options.max_rows, listed(options.tasks)
    require(most is None or most > 0, f"--max-rows: found {most}, expected 1 or more")
    results = zero_shot(store, options.checkpoint, options.datasets, tasks, most)
    width = max(6, *map(len, results))
    for task, scores in results.items():
        print(f"{task:<{width}} {_shown(scores)}")
    print(rows_scored(store, options.datasets))


def predict(options: argparse.Namespace) -> None:
    from flows.cli.files import check_answers_file, check_table
    from flows.forms.references import named_task

    store = store_of(options)
    task = named_task(store, options.task, in_folder=bool(options.tokenizer))
    check_answers_file(options.file, options.out, options.force)
    _look_up_model(options, task)
    if options.file and not options.tokenizer:  # of a model in a folder it alone knows its task
        check_table(store, options.model, options.file, options.skip_errors)
    from flows.inference import predict
    from gptcore.evaluation.inference import Tally
    from gptcore.evaluation.tables import json_line, write_table

    tally, rows = Tally(options.skip_errors), options.file or sys.stdin.buffer
    answers = predict(store, task, options.model, rows, options.tokenizer, tally, table=bool(options.out))
    if options.out:
        print(f"{options.out}: {write_table(Path(options.out), answers, options.file):,} rows", file=sys.stderr)
    else:
        for answer in answers:
            print(json_line(answer), flush=True)
    if words := str(tally):
        print(words, file=sys.stderr)


def perplexity(options: argparse.Namespace) -> None:
    store = _look_up_model(options)
    from flows.inference import perplexity

    print(_shown(perplexity(store, options.model, sys.stdin.buffer, options.tokenizer)))


def generate(options: argparse.Namespace) -> None:
    import json

    from gptcore.evaluation.sampling import check_sampling

    check_sampling(options.max_tokens, options.temperature, options.top_k, options.top_p)
    store = _look_up_model(options)
    from flows.inference import language_model
    from gptcore.evaluation.generate import generate
    from gptcore.evaluation.inference import continue_lines

    model = language_model(store, options.model, options.tokenizer)
    settings = {name: getattr(options, name) for name in ("max_tokens", "temperature", "top_k", "top_p", "seed")}
    if options.prompt is None:
        for answer in continue_lines(*model, sys.stdin.buffer, **settings):
            print(json.dumps(answer, ensure_ascii=False), flush=True)
        return
    pieces = generate(*model, options.prompt, **settings)
    print(options.prompt, end="", flush=True)
    for piece in pieces:
        print(piece, end="", flush=True)
    print()


def submission(options: argparse.Namespace) -> None:
    from flows.cli.models import submission

    store, tasks = store_of(options), task_names(options.tasks)
    report = submission(store, options.checkpoint, options.out, options.datasets, tasks)
    for name, counts in report["files"].items():
        print(f"{name:<12} {counts['rows']:>7} rows")
    for task, url in report["models"].items():
        print(f"{task:<12} {url}")
    for note in report["notes"]:
        print(f"note: {note}")
    print(options.out if report["complete"] else f"{options.out}: a rehearsal, not for the server")


def export(options: argparse.Namespace) -> None:
    out = Path(options.out)
    there = options.out and "://" not in options.out
    require(there, f"--out: found {options.out!r}, expected a new folder on this machine")
    from flows.cli.files import exported_to
    from gptcore.base.hub import push, require_hub

    if options.push:
        require_hub(options.push)
    with exported_to(out, options.force) as made:
        store = _look_up_model(options)
        from flows.inference import export

        lines = export(store, options.model, options.format, str(made), options.tokenizer, options.int8)
    for line in lines:
        print(line.replace(str(made), str(out)))
    if options.push:
        print(push(out, options.push))


def leaderboard(options: argparse.Namespace) -> None:
    from tasks.report.suites import kept_leaderboard

    board, page = kept_leaderboard()
    if options.format == "csv":
        print(board.render("csv"))
    elif options.format == "table" and not options.wide:
        show_board(board, page, options.published)
    else:
        print((board if options.published else board.beside_the_paper()).render(options.format))
        print(f"\n{page}")


def compare(options: argparse.Namespace) -> None:
    from flows.cli.comparison import compare

    for line in compare(store_of(options), (options.first, options.second), options.task):
        print(line)


def report(options: argparse.Namespace) -> None:
    from tasks.report.report import write_report
    from tasks.tracking.tracker import Tracker

    print(write_report(Tracker(), Path(options.out)))


def _look_up_model(options: argparse.Namespace, task: str = "") -> Store:
    """Check that ``--model`` is there, before torch is imported, and say which one it is where that was not typed.

    The option has the model's address from here on.

    :param task: of which the model has to be; empty: any model will do.
    :return: the store that was looked into.
    :raises InputError: there is no such model.
    """
    from flows.forms.references import any_model, fine_tuned_model, model_in_words

    store, ref = store_of(options), options.model or "best"
    if getattr(options, "tokenizer", ""):  # the model is a folder: whoever loads it says what is wrong with it
        require(options.model, "--tokenizer: found no --model beside it, expected the model's folder")
        return store
    artifact = fine_tuned_model(store, ref, task) if task else any_model(store, ref)
    if not artifact.digest.startswith(ref.rpartition("/")[2].lower()):
        print(f"model: {model_in_words(artifact)}", file=sys.stderr)
    options.model = artifact.url
    return store


def _shown(scores: Mapping[str, Any], decimals: int = 4) -> str:
    return "  ".join(
        f"{name} {value:.{decimals}f}" if isinstance(value, float) else f"{name} {value}"
        for name, value in scores.items()
    )


# --- stores, datasets, text


def init_task(options: argparse.Namespace) -> None:
    from flows.cli.init_task import init_task, said_of

    options.task = init_task(
        options.rows, said_of(options), options.name, options.out, options.force, ask=sys.stdin.isatty()
    )


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


def _decoded(line: bytes, number: int) -> str:
    try:
        return line.decode("utf-8")
    except UnicodeDecodeError as error:
        raise InputError(f"standard input, line {number}: byte {error.start} is not UTF-8 ({error.reason})") from None


# --- servers


def up(options: argparse.Namespace) -> None:
    from flows.deployments.settings import read_settings
    from flows.servers.environment import PORTS
    from flows.servers.stack.control import up

    read_settings()  # before anything is started
    require(options.store != "", "--store: found nothing, expected a folder or an address")
    given = {name: port for name in PORTS if (port := getattr(options, f"{name}_port")) is not None}
    up(options.full, given, options.store, options.datasets, _register)


def _register(store: str, datasets: str) -> None:
    """Imported once the stack's server is named in the environment, which Prefect reads as it is imported."""
    from flows.deployments.deploy import deploy

    deploy(store, datasets)


def deploy(options: argparse.Namespace) -> None:
    from flows.deployments.settings import read_settings
    from flows.forms.checks import check_addresses, task_file
    from flows.servers.environment import LIGHT_STORE, absolute, is_of, read_stack, require_log_in, require_prefect
    from flows.servers.stack.control import remember

    settings = read_settings(options.settings)
    require_prefect()
    record = read_stack()
    ours = record is not None and is_of(record, os.environ["PREFECT_API_URL"])
    forms = dict(record["forms"]) if record and ours else {"store": LIGHT_STORE, "datasets": ""}
    given = {name: place for name in forms if (place := getattr(options, name)) is not None}
    forms = {name: absolute(place) for name, place in {**forms, **given}.items()}
    check_addresses(forms)
    tasks = [task_file(file, forms["datasets"]) for file in options.task]
    require_log_in()
    from httpx import TransportError

    from flows.deployments.deploy import deploy

    try:
        deploy(**forms, settings=settings, tasks=tasks)
        if ours:
            remember(forms)
    except TransportError as error:
        raise ConnectionError(
            f"the Prefect server went away meanwhile ({str(error) or type(error).__name__}); "
            "what is done stays: deploy again"
        ) from error
