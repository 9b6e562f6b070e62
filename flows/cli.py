"""The command line: `gptmill COMMAND`. Exit codes: 0 done, 1 failed, 2 bad usage or input, 130 interrupted."""

from __future__ import annotations

import argparse
import os
import sys
import tomllib
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from flows import environment
from gptcore.errors import InputError

if TYPE_CHECKING:
    from flows.parameters import _Form

_FINETUNE_FORM = ("lr", "batch_size", "epochs", "lm_coef", "clf_pdrop", "max_train_rows", "layers")


def main(arguments: Sequence[str] | None = None) -> int:
    """Parse, run, and turn what happened into an exit code."""
    environment.prepare()
    options = _parser().parse_args(arguments)
    try:
        options.run(options)
    except InputError as error:
        print(f"gptmill: error: {error}", file=sys.stderr)
        return 2
    except BrokenPipeError:
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())  # `gptmill ... | head`: the reader has enough
    except KeyboardInterrupt:
        print("gptmill: interrupted; the same command goes on from here", file=sys.stderr)
        return 130
    except Exception as error:
        print(f"gptmill: failed: {type(error).__name__}: {error}", file=sys.stderr)
        if options.debug:
            raise
        return 1
    return 0


def _pipeline(options: argparse.Namespace) -> None:
    from flows.pipeline import pipeline

    board = _run(
        pipeline, "PipelineParameters", options, overrides=_overrides(options.config), tasks=_names(options.tasks)
    )
    print(board.render("table"))


def _pretrain(options: argparse.Namespace) -> None:
    from flows.pretrain import pretrain

    print(_run(pretrain, "PretrainParameters", options, overrides=_overrides(options.config)).url)


def _finetune(options: argparse.Namespace) -> None:
    from flows.finetune import finetune

    chosen = {name: getattr(options, name) for name in _FINETUNE_FORM if getattr(options, name) is not None}
    if options.no_aux_lm:
        chosen["lm_coef"] = 0.0
    print(
        _run(finetune, "FinetuneParameters", options, **chosen, pretrained=not options.no_pretraining).render("table")
    )


def _finetune_all(options: argparse.Namespace) -> None:
    from flows.finetune import finetune_all

    extra = {"overrides": _overrides(options.config), "tasks": _names(options.tasks)}
    print(_run(finetune_all, "FinetuneAllParameters", options, **extra).render("table"))


def _evaluate(options: argparse.Namespace) -> None:
    from flows.logs import quiet_input_errors
    from flows.scoring import evaluate

    quiet_input_errors()
    for split, scores in evaluate(options.store, options.task, options.model, options.datasets).items():
        print(f"{options.task} {split}: " + "  ".join(f"{name} {_number(value)}" for name, value in scores.items()))


def _zero_shot(options: argparse.Namespace) -> None:
    from flows.logs import quiet_input_errors
    from flows.scoring import zero_shot

    quiet_input_errors()
    tasks = [name.strip() for name in options.tasks.split(",") if name.strip()]
    results = zero_shot(options.store, options.checkpoint, options.datasets, tasks, options.max_rows)
    for task, scores in results.items():
        print(f"{task:<6} " + "  ".join(f"{name} {_number(value)}" for name, value in scores.items()))


def _analysis(options: argparse.Namespace) -> None:
    from flows.analysis import ANALYSES

    extra = {"overrides": _overrides(options.config), "tasks": _names(options.tasks)}
    for found in _run(ANALYSES[options.name], "AnalysisParameters", options, **extra):
        print(found.markdown())


def _leaderboard(options: argparse.Namespace) -> None:
    from flows.leaderboard import leaderboard

    print(leaderboard().render(options.format))


def _encode(options: argparse.Namespace) -> None:
    import json

    from gptcore.text.bpe import Tokenizer

    tokenizer = Tokenizer.load(options.tokenizer)
    text = sys.stdin.buffer
    if options.whole:
        print(json.dumps(tokenizer.encode(_decoded(text.read(), 1))))
        return
    for number, line in enumerate(text, start=1):
        print(json.dumps(tokenizer.encode(_decoded(line, number).rstrip("\r\n"))))


def _up(options: argparse.Namespace) -> None:
    from flows.stack import up

    up(options.store, options.datasets, options.prefect_port, options.mlflow_port)


def _down(_: argparse.Namespace) -> None:
    from flows.stack import down

    down()


def _status(_: argparse.Namespace) -> None:
    from flows.stack import status

    status()


def _run(flow: Any, form: str, options: argparse.Namespace, **extra: Any) -> Any:
    """Fill the flow's form from the options of the same names, run the flow, give back its result."""
    from pydantic import ValidationError

    from flows import parameters
    from flows.logs import quiet_input_errors

    model: type[_Form] = getattr(parameters, form)
    given = {n: getattr(options, n) for n in model.model_fields if getattr(options, n, None) is not None}
    try:
        filled = model.model_validate({**given, **extra})
    except ValidationError as error:
        first = error.errors()[0]
        name = "-".join(str(part) for part in first["loc"][:1]).replace("_", "-")
        raise InputError(f"--{name}: found {first['input']!r}; {first['msg']}") from None
    quiet_input_errors()
    return flow(filled)


def _overrides(config: str | None) -> dict[str, Any]:
    """The settings in a TOML file; none without a file."""
    if config is None:
        return {}
    try:
        return tomllib.loads(Path(config).read_text(encoding="utf-8"))
    except OSError as error:
        raise InputError(f"--config {config}: {error.strerror}") from None
    except (tomllib.TOMLDecodeError, UnicodeDecodeError) as error:
        raise InputError(f"--config {config}: not TOML: {error}") from None


def _names(comma_separated: str) -> list[str]:
    from gptcore.nlu.registry import task_spec

    return [task_spec(name.strip()).name for name in comma_separated.split(",") if name.strip()]


def _decoded(line: bytes, number: int) -> str:
    try:
        return line.decode("utf-8")
    except UnicodeDecodeError as error:
        raise InputError(f"standard input, line {number}: byte {error.start} is not UTF-8 ({error.reason})") from None


def _number(value: Any) -> str:
    return f"{value:.4f}" if isinstance(value, float) else str(value)


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(
        prog="gptmill", description="GPT-1: from raw books to a leaderboard of twelve tasks."
    )
    parser.add_argument("--debug", action="store_true", help="show the traceback of a failure")
    commands = parser.add_subparsers(required=True, metavar="COMMAND")

    def command(name: str, run: Any, text: str) -> argparse.ArgumentParser:
        added = commands.add_parser(name, help=text, description=text)
        added.set_defaults(run=run)
        return added

    def store(to: argparse.ArgumentParser) -> None:
        to.add_argument(
            "--store", default="runs/demo", metavar="URL", help="artifacts: folder or fsspec URL (%(default)s)"
        )

    def datasets(to: argparse.ArgumentParser) -> None:
        to.add_argument("--datasets", metavar="URL", default="", help="folder of the twelve datasets (generated world)")

    def preset(to: argparse.ArgumentParser, default: str) -> None:
        to.add_argument("--preset", default=default, help="demo, small or paper (%(default)s)")
        to.add_argument("--config", metavar="FILE", help="TOML file with settings that differ from the preset")

    def chain(to: argparse.ArgumentParser) -> None:
        preset(to, "demo")
        to.add_argument("--corpus", metavar="URL", default="", help="books: folder, glob or URL (generated world)")
        datasets(to)
        store(to)
        to.add_argument("--tasks", default="", metavar="A,B", help="only these tasks (all whose data is there)")
        to.add_argument("--seeds", type=int, help="fine-tunes of each task (1)")
        to.add_argument("--nproc", type=int, help="processes (GPUs) for pre-training (1)")
        to.add_argument("--jobs", type=int, help="fine-tunes at the same time (one a core, or one a GPU)")
        to.add_argument("--dask", metavar="ADDRESS", help="Dask scheduler for cleaning (this machine's cores)")

    run = command("pipeline", _pipeline, "the whole chain, books to leaderboard")
    chain(run)

    run = command("analysis", _analysis, "make one of the paper's analyses: its table or figure")
    run.add_argument("name", choices=["tables", "table5", "layers", "zero-shot"], help="which")
    chain(run)
    run.add_argument("--max-rows", type=int, help="zero-shot rows of each task; 0: all (1000)")
    run.add_argument("--out", metavar="FOLDER", help="also write tables and figures there")

    run = command("pretrain", _pretrain, "pre-train on shards of the store")
    preset(run, "paper")
    run.add_argument("--shards", default="latest", metavar="URL|DIGEST", help="which shards (%(default)s)")
    store(run)
    run.add_argument("--steps", type=int, help="updates (as the preset says)")
    run.add_argument("--nproc", type=int, help="processes, GPUs (1)")

    run = command("finetune", _finetune, "fine-tune one task; defaults are the paper's")
    run.add_argument("task", metavar="TASK", help="snli mnli qnli rte scitail race storycloze mrpc qqp stsb sst2 cola")
    run.add_argument("--checkpoint", default="latest", metavar="REF", help="digest, URL or latest (%(default)s)")
    datasets(run)
    store(run)
    run.add_argument("--seeds", type=int, help="runs with seeds 0, 1, ... (1)")
    run.add_argument("--lr", type=float, help="maximum learning rate (6.25e-5)")
    run.add_argument("--batch-size", type=int, help="examples an update (32)")
    run.add_argument("--epochs", type=int, help="passes over the rows (3)")
    run.add_argument("--lm-coef", type=float, help="weight of the auxiliary LM objective (0.5)")
    run.add_argument("--clf-pdrop", type=float, help="dropout on the classifier (0.1)")
    run.add_argument("--max-train-rows", type=int, help="train on so many rows (all)")
    run.add_argument("--no-aux-lm", action="store_true", help="the same as --lm-coef 0")
    run.add_argument("--no-pretraining", action="store_true", help="random weights instead of the checkpoint's")
    run.add_argument("--layers", type=int, help="blocks transferred; 0: embeddings only (all)")

    run = command("finetune-all", _finetune_all, "fine-tune every task whose data is there")
    preset(run, "demo")
    run.add_argument("--checkpoint", default="latest", metavar="REF", help="digest, URL or latest (%(default)s)")
    datasets(run)
    store(run)
    run.add_argument("--tasks", default="", metavar="A,B", help="only these tasks (all whose data is there)")
    run.add_argument("--seeds", type=int, help="runs with seeds 0, 1, ... (1)")
    run.add_argument("--jobs", type=int, help="fine-tunes at the same time (one a core, or one a GPU)")

    run = command("evaluate", _evaluate, "score a fine-tuned model on its task's dev (and test) rows")
    run.add_argument("task", metavar="TASK")
    run.add_argument("--model", required=True, metavar="REF", help="fine-tuned model: digest, URL or latest")
    datasets(run)
    store(run)

    run = command("zero-shot", _zero_shot, "the paper's heuristics without fine-tuning (section 5)")
    run.add_argument("--checkpoint", default="latest", metavar="REF", help="digest, URL or latest (%(default)s)")
    datasets(run)
    store(run)
    run.add_argument("--tasks", default="", metavar="A,B", help="of cola, sst2, race, dprd (those whose data is there)")
    run.add_argument("--max-rows", type=int, help="rows of each task (all)")

    run = command("leaderboard", _leaderboard, "print the leaderboard that MLflow holds")
    run.add_argument("--format", choices=["table", "markdown", "csv"], default="table")

    run = command("encode", _encode, "text on standard input to ids, one JSON list a line")
    run.add_argument("--tokenizer", required=True, metavar="URL", help="folder with the vocabulary and the merges")
    run.add_argument("--whole", action="store_true", help="the whole input is one document, not each line")

    run = command("up", _up, "Prefect server, MLflow server and a worker on this machine, without Docker")
    store(run)
    datasets(run)
    run.add_argument("--prefect-port", type=int, default=4200, help="%(default)s")
    run.add_argument("--mlflow-port", type=int, default=5000, help="%(default)s")
    command("down", _down, "stop what `up` started")
    command("status", _status, "what `up` started, and where to open it")
    return parser


if __name__ == "__main__":
    sys.exit(main())
