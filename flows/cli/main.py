"""The command line: `gptmill COMMAND`. Exit codes: 0 done, 1 failed, 2 bad usage or input, 130 Ctrl-C, 143 SIGTERM."""

from __future__ import annotations

import argparse
import os
import sys
import traceback
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from flows.cli import commands
from flows.cli import stack as stack_commands
from flows.cli.disk_space import lack_of_space
from flows.servers import environment, signals
from gptcore import __version__
from gptcore.errors import InputError, without_password
from tasks.store.state import state_folder

_ROWS = """\
a row's fields are named as the dataset names its columns, or:
  cola sst2                    text
  snli mnli qnli rte scitail   premise, hypothesis    (qnli: its question is the premise)
  mrpc qqp stsb                text1, text2
  race                         document, question, answers (a list of 4)
  storycloze                   document, answers (a list of 2)
other fields are ignored
example: echo '{"premise": "A cat sat.", "hypothesis": "It sat."}' | gptmill predict rte --model best
"""

_DATASETS = """\
layouts: the public distributions' files, or parquet as the Hugging Face hub has it (pip install gptmill[hf] for hf://)
examples: gptmill datasets --datasets data
          gptmill datasets --datasets hf://datasets/nyu-mll/glue
          gptmill datasets get rte cola --to data
"""
_SWEEP = """\
FILE, for instance (more: infra/sweep-small.toml, gptcore/sweep/plan.py):
  preset = "small"
  objective = "validation/loss"    # or validation/bits_per_byte, or dev/score with tasks = ["rte", ...]
  trials = 9
  rungs = 3                        # 9 trials on 1/9 of the length, the best 3 on 1/3, the best 1 on the whole
  [space.pretrain]
  lr = { low = 5e-4, high = 5e-3, scale = "log" }
  batch_size = [8, 16, 32]
"""
_GET = """\
Fetches datasets, goes on where an earlier call broke off, checks their SHA-256 and unpacks them under the names that
every other command reads. Licences are shown first: they are the authors', and yours to keep.
"""


def main(arguments: Sequence[str] | None = None) -> int:
    """Parse, run, and turn what happened into an exit code."""
    options = argparse.Namespace(debug=False)
    try:
        with signals.polite_end(program=arguments is None):
            options = _parser().parse_args(arguments)
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


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(
        prog="gptmill", description="GPT-1 and GPT-2: from raw books to a leaderboard of twelve tasks."
    )
    parser.add_argument("--version", action="version", version=f"gptmill {__version__}")
    parser.add_argument("--debug", action="store_true", help="show the traceback of a failure")
    subparsers = parser.add_subparsers(required=True, metavar="COMMAND")

    def command(name: str, run: Any, text: str) -> argparse.ArgumentParser:
        added = subparsers.add_parser(name, help=text, description=text)
        added.set_defaults(run=run, command=name)
        return added

    def verbose(to: argparse.ArgumentParser) -> None:
        to.add_argument("--verbose", action="store_true", help="Prefect's own lines in place of a line a stage")

    def store(to: argparse.ArgumentParser) -> None:
        to.add_argument(
            "--store", default="runs/demo", metavar="URL", help="artifacts: folder or fsspec URL (%(default)s)"
        )

    def datasets(
        to: argparse.ArgumentParser,
        text: str = "folder of the twelve datasets, hf:// too (generated world)",
        default: str | None = "",
    ) -> None:
        to.add_argument("--datasets", metavar="URL", default=default, help=text)

    def preset(to: argparse.ArgumentParser, default: str, names: str = "demo, small, long or paper") -> None:
        to.add_argument("--preset", default=default, help=f"{names} ({default})")
        to.add_argument("--config", metavar="FILE", help="TOML file with settings that differ from the preset")

    def family(to: argparse.ArgumentParser) -> None:
        to.add_argument("--family", default="gpt", metavar="NAME", help="network and text: gpt or gpt2 (%(default)s)")

    def world(to: argparse.ArgumentParser) -> None:
        to.add_argument("--nproc", type=int, help="processes of a pre-training, one a GPU (all of a machine's; else 1)")
        to.add_argument("--shard", action="store_true", default=None, help="weights sharded over them (whole on each)")

    def start(to: argparse.ArgumentParser) -> None:
        to.add_argument("--from", dest="start", metavar="REF", help="pre-train from this checkpoint's weights (random)")

    def chain(to: argparse.ArgumentParser) -> None:
        preset(to, "demo")
        family(to)
        to.add_argument("--corpus", metavar="URL", default="", help="books: folder, glob or URL (generated world)")
        datasets(to)
        store(to)
        to.add_argument("--tasks", default="", metavar="A,B", help="only these tasks (all whose data is there)")
        to.add_argument("--seeds", type=int, help="fine-tunes of each task (as preset and task say)")
        world(to)
        to.add_argument("--jobs", type=int, help="fine-tunes at the same time (one a core, or one a GPU; 16 on Slurm)")
        to.add_argument("--dask", metavar="ADDRESS", help="Dask scheduler for the corpus stages (this machine's cores)")
        to.add_argument(
            "--tokenizer", metavar="REF", help="pinned: digest, latest, URL or folder; reads only new books"
        )
        start(to)
        verbose(to)

    run = command("pipeline", commands.pipeline, "the whole chain, books to leaderboard")
    chain(run)

    run = command("analysis", commands.analysis, "make one of the paper's analyses: its table or figure")
    run.add_argument("name", choices=["tables", "table5", "layers", "zero-shot", "learning", "overlap"], help="which")
    chain(run)
    run.add_argument(
        "--max-rows", type=int, help="zero-shot rows of each task, BLiMP pairs of each field; 0: all (1000)"
    )
    run.add_argument("--out", metavar="FOLDER", help="also write tables and figures there")

    run = command("sweep", commands.sweep, "search for better settings: trials, of which the best train on")
    run.formatter_class = argparse.RawDescriptionHelpFormatter
    run.epilog = _SWEEP
    run.add_argument("file", metavar="FILE", help="TOML: what to try, and what decides (see below)")
    run.add_argument("--corpus", metavar="URL", default="", help="books: folder, glob or URL (generated world)")
    datasets(run)
    store(run)
    run.add_argument("--checkpoint", metavar="REF", default="", help="fine-tune this model in each trial (its own)")
    run.add_argument("--nproc", type=int, help="processes of each pre-training, one a GPU (1)")
    run.add_argument(
        "--jobs", type=int, help="trainings at once (pre-trainings: 1, or one a GPU; fine-tunes: one a core)"
    )
    run.add_argument("--dask", metavar="ADDRESS", help="Dask scheduler for the corpus stages (this machine's cores)")
    verbose(run)

    run = command(
        "abstracts", commands.abstracts, "a GPT-2 that writes abstracts from titles, fine-tuned on arXiv's papers"
    )
    run.add_argument(
        "action",
        nargs="?",
        choices=["tables", "generate"],
        help="tables: the paper's Tables 3 to 7 and models of other sizes; generate: write with a model that is there",
    )
    preset(run, "demo", "demo, small or paper")
    run.set_defaults(preset=None)  # generate: not the demo's sampling for any model
    run.add_argument(
        "--arxiv",
        metavar="URL",
        default="",
        help="arXiv Archive: a .tsv, .tsv.xz or .tsv.gz, or a folder (generated papers)",
    )
    run.add_argument(
        "--checkpoint",
        metavar="REF",
        default="",
        help="GPT-2 to start from, a Hugging Face folder too (trained here)",
    )
    run.add_argument("--corpus", metavar="URL", default="", help="books to pre-train on (generated world)")
    store(run)
    run.add_argument(
        "--categories", default="", metavar="A,B", help="only papers in one of them (the paper's four, where there are)"
    )
    run.add_argument("--titles", type=int, help="held-out papers to write abstracts for (as the preset says)")
    run.add_argument("--only", default="", metavar="A,B", help="tables: only these of table3 to table7 and sizes (all)")
    run.add_argument("--nproc", type=int, help="processes of a pre-training, one a GPU (all of a machine's; else 1)")
    run.add_argument("--jobs", type=int, help="trainings at the same time (2; tables: one a core, or a GPU)")
    run.add_argument("--out", metavar="FOLDER", help="also write the tables there")
    run.add_argument(
        "--title", action="append", metavar="TEXT", help="generate: of an abstract to write; may come again"
    )
    run.add_argument("--model", metavar="REF", help="generate: a digest or address (the model that wrote last)")
    run.add_argument("--seed", type=int, help="generate: names the draws (as the preset says)")
    verbose(run)

    run = command("few-shot", commands.few_shot, "answers from prompts with 0, 1, k examples, without fine-tuning")
    preset(run, "demo", "whose three sizes of GPT-2 are trained: demo, small or paper")
    run.add_argument("--checkpoint", metavar="A,B", default="", help="these models instead, Hugging Face folders too")
    run.add_argument("--corpus", metavar="URL", default="", help="text to pre-train on (generated world's web)")
    datasets(run, "folder of the datasets (generated world)")
    store(run)
    run.add_argument("--tasks", default="", metavar="A,B", help="only these tasks (all whose data is there)")
    run.add_argument("--shots", metavar="K,L", help="examples before a question (0,1,4,8)")
    run.add_argument("--max-rows", type=int, help="rows of each task; 0: all (200)")
    run.add_argument("--nproc", type=int, help="processes of a pre-training, one a GPU (all of a machine's; else 1)")
    run.add_argument("--out", metavar="FOLDER", help="also write tables and figures there")
    verbose(run)

    run = command("pretrain", commands.pretrain, "pre-train on shards of the store")
    preset(run, "paper")
    family(run)
    run.add_argument("--shards", default="latest", metavar="URL|DIGEST", help="which shards (%(default)s)")
    store(run)
    run.add_argument("--steps", type=int, help="updates (as the preset says)")
    world(run)
    start(run)
    verbose(run)

    run = command("finetune", commands.finetune, "fine-tune one task; defaults are the paper's")
    run.add_argument("task", metavar="TASK", help="snli mnli qnli rte scitail race storycloze mrpc qqp stsb sst2 cola")
    run.add_argument(
        "--checkpoint", default="latest", metavar="REF", help="digest, URL, latest or models:/... (%(default)s)"
    )
    datasets(run)
    store(run)
    run.add_argument("--seeds", type=int, help="runs with seeds 0, 1, ... (5 for small sets, else 1)")
    run.add_argument("--lr", type=float, help="maximum learning rate (6.25e-5)")
    run.add_argument("--batch-size", type=int, help="examples an update (32)")
    run.add_argument("--epochs", type=int, help="passes over the rows (3)")
    run.add_argument("--lm-coef", type=float, help="weight of the auxiliary LM objective (0.5)")
    run.add_argument("--clf-pdrop", type=float, help="dropout on the classifier (0.1)")
    run.add_argument("--max-train-rows", type=int, help="train on so many rows (all)")
    run.add_argument("--no-aux-lm", action="store_true", help="the same as --lm-coef 0")
    run.add_argument("--no-pretraining", action="store_true", help="random weights instead of the checkpoint's")
    run.add_argument("--layers", type=int, help="blocks transferred; 0: embeddings only (all)")
    verbose(run)

    run = command("finetune-all", commands.finetune_all, "fine-tune every task whose data is there")
    preset(run, "demo")
    run.add_argument(
        "--checkpoint", default="latest", metavar="REF", help="digest, URL, latest or models:/... (%(default)s)"
    )
    datasets(run)
    store(run)
    run.add_argument("--tasks", default="", metavar="A,B", help="only these tasks (all whose data is there)")
    run.add_argument("--seeds", type=int, help="runs with seeds 0, 1, ... (as preset and task say)")
    run.add_argument("--jobs", type=int, help="fine-tunes at the same time (one a core, or one a GPU; 16 on Slurm)")
    verbose(run)

    run = command("evaluate", commands.evaluate, "score a fine-tuned model on its task's dev (and test) rows")
    run.add_argument("task", metavar="TASK")
    run.add_argument("--model", required=True, metavar="REF", help="fine-tuned: digest, URL, latest, best, models:/...")
    datasets(run)
    store(run)

    run = command("zero-shot", commands.zero_shot, "without fine-tuning: the paper's heuristics (section 5), BLiMP")
    run.add_argument(
        "--checkpoint", default="latest", metavar="REF", help="digest, URL, latest or models:/... (%(default)s)"
    )
    datasets(run)
    store(run)
    run.add_argument(
        "--tasks", default="", metavar="A,B", help="of cola, sst2, race, dprd, blimp (those whose data is there)"
    )
    run.add_argument("--max-rows", type=int, help="rows of each task, of BLiMP pairs of each field (all)")

    def model(to: argparse.ArgumentParser, kinds: str, names: str) -> None:
        to.add_argument(
            "--model",
            required=True,
            metavar="REF",
            help=f"{kinds}: digest, URL, {names}, models:/...; or a folder (--tokenizer)",
        )
        to.add_argument("--tokenizer", default="", metavar="URL", help="of a --model that is a folder: the tokenizer's")
        store(to)

    run = command("predict", commands.predict, "answer your own rows: JSON lines on standard input, one answer a line")
    run.add_argument("task", metavar="TASK")
    model(run, "fine-tuned model", "latest, best (on dev rows)")
    run.formatter_class = argparse.RawDescriptionHelpFormatter
    run.epilog = _ROWS

    run = command("perplexity", commands.perplexity, "how well a model predicts a text: one document on standard input")
    model(run, "pre-trained or fine-tuned model", "latest")

    run = command("generate", commands.generate, "continue a prompt, or each line of standard input")
    model(run, "pre-trained or fine-tuned model", "latest")
    run.add_argument(
        "--prompt",
        metavar="TEXT",
        help="what to go on from (each line of standard input, 8 at a time; a JSON line for each)",
    )
    run.add_argument("--max-tokens", type=int, default=100, help="at most so many (%(default)s)")
    run.add_argument("--temperature", type=float, default=1.0, help="0: the likeliest token each time (%(default)s)")
    run.add_argument("--top-k", type=int, default=0, help="draw from so many of the likeliest; 0: all (%(default)s)")
    run.add_argument("--top-p", type=float, default=1.0, help="draw from the likeliest of this share (%(default)s)")
    run.add_argument("--seed", type=int, default=0, help="names the draws (%(default)s)")

    run = command(
        "submission", commands.submission, "the zip that GLUE's test server scores, from one checkpoint's fine-tunes"
    )
    run.add_argument(
        "--checkpoint", default="latest", metavar="REF", help="digest, URL, latest or models:/... (%(default)s)"
    )
    datasets(run)
    store(run)
    run.add_argument("--out", required=True, metavar="FILE.zip", help="the zip to write")
    run.add_argument("--tasks", default="", metavar="A,B", help="only these tasks' files (a rehearsal)")

    run = command("export", commands.export, "write a model in another layout")
    model(run, "pre-trained or fine-tuned model", "latest")
    run.add_argument(
        "--format",
        choices=["hugging-face", "release"],
        default="hugging-face",
        help="a folder for transformers, tokenizer included; or the original release's arrays (%(default)s)",
    )
    run.add_argument("--out", required=True, metavar="FOLDER", help="a new folder")

    run = command("leaderboard", commands.leaderboard, "print the leaderboard that MLflow holds")
    run.add_argument(
        "--format",
        choices=["table", "markdown", "csv"],
        default="table",
        help="csv has every row and what stands behind each number (%(default)s)",
    )
    run.add_argument("--wide", action="store_true", help="table: a line a suite, every suite")
    run.add_argument("--published", action="store_true", help="table, markdown: the other published methods too")

    run = command("gc", commands.gc, "list, and with --yes delete, what no row, analysis, sweep or alias refers to")
    store(run)
    run.add_argument("--yes", action="store_true", help="delete what is listed (else a terminal is asked)")
    run.add_argument(
        "--older-than", type=float, default=24.0, metavar="HOURS", help="what is younger stays (%(default)g)"
    )
    run.add_argument("--all-unreferenced", action="store_true", help="also what this MLflow has never heard of")

    run = command("datasets", commands.datasets, "what a folder holds of each dataset, beside what is published")
    run.formatter_class = argparse.RawDescriptionHelpFormatter
    run.epilog = _DATASETS
    datasets(run, "folder or fsspec URL, hf:// too (none: what there is, and where)")
    get = run.add_subparsers(metavar="get").add_parser(
        "get", help="fetch datasets from their official addresses", description=_GET
    )
    get.set_defaults(run=commands.get_datasets)
    get.add_argument("names", nargs="+", metavar="NAME", help="datasets as the list names them; all: every one")
    get.add_argument("--to", required=True, metavar="FOLDER", help="folder of datasets: each becomes a sub-folder")
    get.add_argument(
        "--mirror", metavar="URL", default="", help="fetch URL/FILE instead of the official address of each FILE"
    )

    run = command("encode", commands.encode, "text on standard input to ids, one JSON list a line")
    run.add_argument("--tokenizer", required=True, metavar="URL", help="folder with the vocabulary and the merges")
    run.add_argument("--whole", action="store_true", help="the whole input is one document, not each line")

    run = command("deploy", stack_commands.deploy, "put flows, schedules and automations on the Prefect server")
    run.add_argument("--store", metavar="URL", help="default store of the forms (the running stack's, else runs/demo)")
    theirs = "default datasets of the forms (the running stack's, else the generated world, which '' says, too)"
    datasets(run, theirs, None)
    run.add_argument(
        "--settings", metavar="FILE", help="TOML: the pipeline's schedules, alerts (deploy.toml of the state folder)"
    )

    run = command("up", stack_commands.up, "Prefect server, MLflow server and workers on this machine, without Docker")
    run.add_argument("--full", action="store_true", help="on PostgreSQL and an S3 server, with passwords")
    run.add_argument(
        "--store",
        metavar="URL",
        help="default store of the forms (the running stack's, else runs/demo; with --full: the S3 server's bucket)",
    )
    datasets(run, theirs, None)
    for name, port in environment.PORTS.items():
        text = f"{'with --full: ' if name in ('postgres', 's3') else ''}{port}, or the running one's"
        text += "; takes the next three, and +10000, too" if name == "s3" else ""
        run.add_argument(f"--{name}-port", type=int, metavar="PORT", help=text)
    run = command("down", stack_commands.down, "stop what `up` started; what it has kept stays")
    run.add_argument("--wipe", action="store_true", help="delete what `up --full` has kept, without asking")
    command("status", stack_commands.status, "what `up` started, and where to open it")
    return parser


if __name__ == "__main__":
    sys.exit(main())
