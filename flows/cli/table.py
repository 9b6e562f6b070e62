"""Every command of the command line, in the order of `gptmill --help`."""

from __future__ import annotations

from flows.cli import commands, epilogs
from flows.cli import stack as stack_commands
from flows.cli.options import Argument, Command, argument, flag
from flows.servers.environment import LIGHT_STORE, PORTS

# --- options of several commands that fill no form

_TASK = argument("task", metavar="TASK")
_STORE = argument("--store", "artifacts: folder or fsspec URL (%(default)s)", default=LIGHT_STORE, metavar="URL")
_DATASETS_URL = argument(
    "--datasets", "folder of the twelve datasets, hf:// too (generated world)", default="", metavar="URL"
)
_CHECKPOINT = argument(
    "--checkpoint", "digest, URL, latest or models:/... (%(default)s)", default="latest", metavar="REF"
)
_VERBOSE = flag("--verbose", "Prefect's own lines in place of a line a stage")


def _model(kinds: str, names: str, required: bool = True) -> tuple[Argument, ...]:
    """A model of the store, or a folder."""
    text = f"{kinds}: digest, URL, {names}, models:/...; or a folder (--tokenizer)"
    return (
        argument("--model", text, required=required, default="", metavar="REF"),
        argument("--tokenizer", "of a --model that is a folder: the tokenizer's", default="", metavar="URL"),
        _STORE,
    )


_ANY_MODEL = _model("pre-trained or fine-tuned model", "latest")

_ANALYSES = [
    *("tables", "table5", "layers", "zero-shot", "learning", "overlap"),
    *("families", "objectives", "sentences", "sharing", "replaced", "sizes", "students", "distillation"),
    "entities",
]

# --- what trains, and so fills a form

_TRAINING = (
    Command(
        "pipeline", commands.pipeline, "the whole chain, books to leaderboard", ("PipelineParameters",), (_VERBOSE,)
    ),
    Command(
        "analysis",
        commands.analysis,
        "make one of the paper's analyses: its table or figure",
        ("AnalysisParameters", "StudentsParameters", "DistillationParameters"),
        (_VERBOSE,),
        first=(argument("name", "which", choices=_ANALYSES),),
    ),
    Command(
        "knowledge",
        commands.knowledge,
        "a knowledge graph: its facts, vectors learnt from them, what these predict",
        ("KnowledgeParameters",),
        (_VERBOSE,),
        epilog=epilogs.KNOWLEDGE,
    ),
    Command(
        "reason",
        commands.reason,
        "questions answered from their text and a knowledge graph (KagNET), and why",
        ("ReasonParameters",),
        (_VERBOSE,),
        epilog=epilogs.REASON,
    ),
    Command(
        "sweep",
        commands.sweep,
        "search for better settings: trials, of which the best train on",
        ("SweepParameters",),
        (_VERBOSE,),
        epilog=epilogs.SWEEP,
    ),
    Command(
        "abstracts",
        commands.abstracts,
        "a GPT-2 that writes abstracts from titles, fine-tuned on arXiv's papers",
        ("AbstractsParameters", "AbstractsTablesParameters", "GenerateParameters"),
        (argument("--seed", "generate: names the draws (as the preset says)", type=int), _VERBOSE),
        first=(
            argument(
                "action",
                "tables: the paper's Tables 3 to 7 and models of other sizes; generate: write with a model that is "
                "there",
                nargs="?",
                choices=["tables", "generate"],
            ),
        ),
        defaults={"preset": None},  # generate: not the demo's sampling for any model
    ),
    Command(
        "few-shot",
        commands.few_shot,
        "answers from prompts with 0, 1, k examples, without fine-tuning",
        ("FewShotParameters",),
        (_VERBOSE,),
    ),
    Command(
        "distil",
        commands.distil,
        "a student that learns from a pre-trained model, and both on the tasks",
        ("DistilParameters",),
        (_VERBOSE,),
    ),
    Command("pretrain", commands.pretrain, "pre-train on shards of the store", ("PretrainParameters",), (_VERBOSE,)),
    Command(
        "finetune",
        commands.finetune,
        "fine-tune one task; defaults are the paper's",
        ("FinetuneParameters",),
        (flag("--no-aux-lm", "the same as --lm-coef 0"), _VERBOSE),
    ),
    Command(
        "finetune-all",
        commands.finetune_all,
        "fine-tune every task whose data is there",
        ("FinetuneAllParameters",),
        (_VERBOSE,),
    ),
)

# --- what looks at models and boards

_LOOKING = (
    Command(
        "evaluate",
        commands.evaluate,
        "score a fine-tuned model on its task's dev (and test) rows",
        arguments=(
            _TASK,
            argument("--model", "fine-tuned: digest, URL, latest, best, models:/...", required=True, metavar="REF"),
            _DATASETS_URL,
            _STORE,
        ),
    ),
    Command(
        "zero-shot",
        commands.zero_shot,
        "without fine-tuning: the paper's heuristics (section 5), BLiMP",
        arguments=(
            _CHECKPOINT,
            _DATASETS_URL,
            _STORE,
            argument(
                "--tasks", "of cola, sst2, race, dprd, blimp (those whose data is there)", default="", metavar="A,B"
            ),
            argument("--max-rows", "rows of each task, of BLiMP pairs of each field (all)", type=int),
        ),
    ),
    Command(
        "predict",
        commands.predict,
        "answer your own rows: JSON lines on standard input, one answer a line",
        arguments=(
            _TASK,
            *_model("fine-tuned model", "latest, best (on dev rows)", required=False),
            flag("--explain", "by KagNET (gptmill reason), with the graph's paths that led to each choice"),
        ),
        epilog=epilogs.ROWS,
    ),
    Command(
        "serve",
        commands.serve,
        "put a model behind HTTP on this machine: /predict or /generate, /health",
        arguments=(
            argument("name", "a task, a task's file, or a model's REF", metavar="TASK|REF"),
            argument("--model", "which of a task's models: REF, latest, best (best)", default="", metavar="REF"),
            _STORE,
            argument("--port", "(%(default)s)", type=int, default=8080, metavar="PORT"),
        ),
        epilog=epilogs.SERVE,
    ),
    Command(
        "perplexity",
        commands.perplexity,
        "how well a model predicts a text: one document on standard input",
        arguments=_ANY_MODEL,
    ),
    Command(
        "generate",
        commands.generate,
        "continue a prompt, or each line of standard input",
        arguments=(
            *_ANY_MODEL,
            argument(
                "--prompt",
                "what to go on from (each line of standard input, 8 at a time; a JSON line for each)",
                metavar="TEXT",
            ),
            argument("--max-tokens", "at most so many (%(default)s)", type=int, default=100),
            argument("--temperature", "0: the likeliest token each time (%(default)s)", type=float, default=1.0),
            argument("--top-k", "draw from so many of the likeliest; 0: all (%(default)s)", type=int, default=0),
            argument("--top-p", "draw from the likeliest of this share (%(default)s)", type=float, default=1.0),
            argument("--seed", "names the draws (%(default)s)", type=int, default=0),
        ),
    ),
    Command(
        "submission",
        commands.submission,
        "the zip that GLUE's test server scores, from one checkpoint's fine-tunes",
        arguments=(
            _CHECKPOINT,
            _DATASETS_URL,
            _STORE,
            argument("--out", "the zip to write", required=True, metavar="FILE.zip"),
            argument("--tasks", "only these tasks' files (a rehearsal)", default="", metavar="A,B"),
        ),
    ),
    Command(
        "export",
        commands.export,
        "write a model in another layout",
        arguments=(
            *_ANY_MODEL,
            argument(
                "--format",
                "a folder for transformers, tokenizer included (encoders' fine-tuned models, too); the original "
                "release's arrays; or a fine-tuned model for onnxruntime, compared on its dev rows (%(default)s)",
                choices=["hugging-face", "release", "onnx"],
                default="hugging-face",
            ),
            argument("--out", "a new folder", required=True, metavar="FOLDER"),
            flag("--int8", "onnx: also with int8 weights, and what that costs"),
        ),
    ),
    Command(
        "leaderboard",
        commands.leaderboard,
        "print the leaderboard that MLflow holds",
        arguments=(
            argument(
                "--format",
                "csv has every row and what stands behind each number (%(default)s)",
                choices=["table", "markdown", "csv"],
                default="table",
            ),
            flag("--wide", "table: a line a suite, every suite"),
            flag("--published", "table, markdown: the other published methods too"),
        ),
    ),
)

# --- stores, datasets, text

_GET_DATASETS = Command(
    "get",
    commands.get_datasets,
    "fetch datasets from their official addresses",
    description=epilogs.GET,
    arguments=(
        argument("names", "datasets as the list names them; all: every one", nargs="+", metavar="NAME"),
        argument("--to", "folder of datasets: each becomes a sub-folder", required=True, metavar="FOLDER"),
        argument("--mirror", "fetch URL/FILE instead of the official address of each FILE", default="", metavar="URL"),
    ),
)
_CHECK_TASK = Command(
    "check",
    commands.check_task,
    "what a task holds, your own too: rows, labels, lengths, duplicates",
    description=epilogs.CHECK,
    arguments=(
        argument("file", "a task's name, or the TOML file of your own", metavar="TASK"),
        argument("--datasets", "folder of datasets; where an own task's folder may be, too", default="", metavar="URL"),
    ),
)
_DATA = (
    Command(
        "gc",
        commands.gc,
        "list, and with --yes delete, what no row, analysis, sweep or alias refers to",
        arguments=(
            _STORE,
            flag("--yes", "delete what is listed (else a terminal is asked)"),
            argument("--older-than", "what is younger stays (%(default)g)", type=float, default=24.0, metavar="HOURS"),
            flag("--all-unreferenced", "also what this MLflow has never heard of"),
        ),
    ),
    Command(
        "datasets",
        commands.datasets,
        "what a folder holds of each dataset, beside what is published",
        arguments=(
            argument(
                "--datasets",
                "folder or fsspec URL, hf:// too (none: what there is, and where)",
                default="",
                metavar="URL",
            ),
        ),
        epilog=epilogs.DATASETS,
        below=(_GET_DATASETS, _CHECK_TASK),
    ),
    Command(
        "encode",
        commands.encode,
        "text on standard input to ids, one JSON list a line",
        arguments=(
            argument("--tokenizer", "folder with the vocabulary and the merges", required=True, metavar="URL"),
            flag("--whole", "the whole input is one document, not each line"),
        ),
    ),
)

# --- servers

_FORMS_DATASETS = argument(
    "--datasets",
    "default datasets of the forms (the running stack's, else the generated world, which '' says, too)",
    metavar="URL",
)


def _port(name: str, port: int) -> Argument:
    text = f"{'with --full: ' if name in ('postgres', 's3') else ''}{port}, or the running one's"
    text += "; takes the next three, and +10000, too" if name == "s3" else ""
    return argument(f"--{name}-port", text, type=int, metavar="PORT")


_STACK = (
    Command(
        "deploy",
        stack_commands.deploy,
        "put flows, schedules and automations on the Prefect server",
        arguments=(
            argument("--store", f"default store of the forms (the running stack's, else {LIGHT_STORE})", metavar="URL"),
            _FORMS_DATASETS,
            argument(
                "--task",
                "file of a task of your own that the forms' drop-downs list from now on; may come again",
                action="append",
                default=[],
                metavar="FILE",
            ),
            argument(
                "--settings",
                "TOML: the pipeline's schedules, alerts (deploy.toml of the state folder)",
                metavar="FILE",
            ),
        ),
    ),
    Command(
        "up",
        stack_commands.up,
        "Prefect server, MLflow server and workers on this machine, without Docker",
        arguments=(
            flag("--full", "on PostgreSQL and an S3 server, with passwords"),
            argument(
                "--store",
                f"default store of the forms (the running stack's, else {LIGHT_STORE}; with --full: the S3 server's "
                "bucket)",
                metavar="URL",
            ),
            _FORMS_DATASETS,
            *(_port(name, port) for name, port in PORTS.items()),
        ),
    ),
    Command(
        "down",
        stack_commands.down,
        "stop what `up` started; what it has kept stays",
        arguments=(flag("--wipe", "delete what `up --full` has kept, without asking"),),
    ),
    Command("status", stack_commands.status, "what `up` started, and where to open it"),
)

COMMANDS = (*_TRAINING, *_LOOKING, *_DATA, *_STACK)
