"""What each command does with its options: fill a form, run a flow, print the result.

Everything heavy is imported where it is used, so that `gptmill --help` takes no second.
"""

from __future__ import annotations

import argparse
import sys
import tomllib
from pathlib import Path
from typing import TYPE_CHECKING, Any

from gptcore.errors import InputError

if TYPE_CHECKING:
    from flows.parameters import _Form

_FINETUNE_FORM = ("lr", "batch_size", "epochs", "lm_coef", "clf_pdrop", "max_train_rows", "layers")


def pipeline(options: argparse.Namespace) -> None:
    from flows.pipeline import pipeline

    board = _run(
        pipeline, "PipelineParameters", options, overrides=_overrides(options.config), tasks=_names(options.tasks)
    )
    print(board.render("table"))


def pretrain(options: argparse.Namespace) -> None:
    from flows.pretrain import pretrain

    print(_run(pretrain, "PretrainParameters", options, overrides=_overrides(options.config)).url)


def finetune(options: argparse.Namespace) -> None:
    from flows.finetune import finetune

    chosen = {name: getattr(options, name) for name in _FINETUNE_FORM if getattr(options, name) is not None}
    if options.no_aux_lm:
        chosen["lm_coef"] = 0.0
    print(
        _run(finetune, "FinetuneParameters", options, **chosen, pretrained=not options.no_pretraining).render("table")
    )


def finetune_all(options: argparse.Namespace) -> None:
    from flows.finetune import finetune_all

    extra = {"overrides": _overrides(options.config), "tasks": _names(options.tasks)}
    print(_run(finetune_all, "FinetuneAllParameters", options, **extra).render("table"))


def evaluate(options: argparse.Namespace) -> None:
    from flows.logs import quiet_input_errors
    from flows.scoring import evaluate

    quiet_input_errors()
    for split, scores in evaluate(options.store, options.task, options.model, options.datasets).items():
        print(f"{options.task} {split}: " + "  ".join(f"{name} {_number(value)}" for name, value in scores.items()))


def zero_shot(options: argparse.Namespace) -> None:
    from flows.logs import quiet_input_errors
    from flows.scoring import zero_shot

    quiet_input_errors()
    tasks = [name.strip() for name in options.tasks.split(",") if name.strip()]
    results = zero_shot(options.store, options.checkpoint, options.datasets, tasks, options.max_rows)
    for task, scores in results.items():
        print(f"{task:<6} " + "  ".join(f"{name} {_number(value)}" for name, value in scores.items()))


def analysis(options: argparse.Namespace) -> None:
    from flows.analysis import ANALYSES

    extra = {"overrides": _overrides(options.config), "tasks": _names(options.tasks)}
    for found in _run(ANALYSES[options.name], "AnalysisParameters", options, **extra):
        print(found.markdown())


def leaderboard(options: argparse.Namespace) -> None:
    from flows.leaderboard import leaderboard
    from tasks.tracking.tracker import Tracker
    from tasks.tracking.views import leaderboard_line

    print(
        leaderboard().render(options.format) + (f"\n{leaderboard_line(Tracker())}" if options.format == "table" else "")
    )


def encode(options: argparse.Namespace) -> None:
    import json

    from gptcore.text.bpe import Tokenizer

    tokenizer = Tokenizer.load(options.tokenizer)
    text = sys.stdin.buffer
    if options.whole:
        print(json.dumps(tokenizer.encode(_decoded(text.read(), 1))))
        return
    for number, line in enumerate(text, start=1):
        print(json.dumps(tokenizer.encode(_decoded(line, number).rstrip("\r\n"))))


def export(options: argparse.Namespace) -> None:
    from flows.serving import export

    for path in export(options.store, options.model, options.format, options.out, options.tokenizer):
        print(path)


def predict(options: argparse.Namespace) -> None:
    import json

    from flows.serving import predict

    for answer in predict(options.store, options.task, options.model, sys.stdin.buffer, options.tokenizer):
        print(json.dumps(answer, ensure_ascii=False), flush=True)


def perplexity(options: argparse.Namespace) -> None:
    from flows.serving import perplexity

    found = perplexity(options.store, options.model, sys.stdin.buffer, options.tokenizer)
    print("  ".join(f"{name} {_number(value)}" for name, value in found.items()))


def generate(options: argparse.Namespace) -> None:
    from flows.serving import generate

    settings = {name: getattr(options, name) for name in ("max_tokens", "temperature", "top_k", "top_p", "seed")}
    pieces = generate(options.store, options.model, options.prompt, options.tokenizer, **settings)
    print(options.prompt, end="", flush=True)
    for piece in pieces:
        print(piece, end="", flush=True)
    print()


def submission(options: argparse.Namespace) -> None:
    from flows.logs import quiet_input_errors
    from flows.submission import submission

    quiet_input_errors()
    tasks = _names(options.tasks)
    report = submission(options.store, options.checkpoint, options.out, options.datasets, tasks)
    for name, counts in report["files"].items():
        print(f"{name:<12} {counts['rows']:>7} rows")
    for task, url in report["models"].items():
        print(f"{task:<12} {url}")
    for note in report["notes"]:
        print(f"note: {note}")
    print(options.out if report["complete"] else f"{options.out}: a rehearsal, not for the server")


def up(options: argparse.Namespace) -> None:
    from flows.stack import up

    up(options.store, options.datasets, options.prefect_port, options.mlflow_port)


def down(_: argparse.Namespace) -> None:
    from flows.stack import down

    down()


def status(_: argparse.Namespace) -> None:
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
