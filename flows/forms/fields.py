"""Fields that several forms have, each at its own position."""

from __future__ import annotations

from typing import Any, Unpack

from flows.forms.option import Limits, Option, as_typed, field, spoken
from flows.forms.readers import config_file, learning_rates, task_names
from flows.servers.environment import LIGHT_STORE
from gptcore.config import FinetuneConfig
from gptcore.families import offered

ADDRESS = Option(metavar="URL")
MODEL = Option(metavar="REF")


def preset(default: str, text: str = "Sizes and schedules: demo, small, long, best or paper.") -> Any:
    return field(0, default, text, title="Preset")


def store(position: int) -> Any:
    return field(position, LIGHT_STORE, "Where artifacts live: a folder or any fsspec URL (s3://...).", option=ADDRESS)


def corpus(position: int, text: str = "Books: folder, glob or URL.", empty: str = "") -> Any:
    return field(position, "", text, empty=empty or "the generated, synthetic world", option=ADDRESS)


def datasets(position: int, text: str = "Folder of the twelve datasets.") -> Any:
    option = Option(metavar="URL", help=f"{spoken(text)}, hf:// too")
    return field(position, "", text, empty="the generated, synthetic world", option=option)


def overrides(position: int, example: str, text: str = "Settings that differ") -> Any:
    in_file = Option("config", "FILE", "TOML file with settings that differ from the preset", config_file)
    return field(position, {}, f"{text}, e.g. {example}.", option=in_file)


def tasks(position: int) -> Any:
    option = Option(read=task_names, help="only these tasks, files of your own among them: rte,./my-task.toml")
    return field(position, [], "Only these tasks.", empty="every task whose data is there", option=option)


def checkpoint(position: int) -> Any:
    return field(
        position,
        "latest",
        "Pre-trained model: one of the store's, or type a digest (or its beginning), a URL, latest, or "
        "models:/NAME@ALIAS of MLflow's registry.",
        option=MODEL,
    )


def tokenizer(position: int) -> Any:
    return field(
        position,
        "",
        "Pinned tokenizer: digest (or beginning), latest, a URL, or a folder with a vocabulary; then only new books "
        "are read.",
        empty="learnt from the corpus",
        option=MODEL,
    )


def start(position: int) -> Any:
    return field(
        position,
        "",
        "Go on from a pre-trained model's weights: its digest (or beginning), a URL, latest, or a folder of Hugging "
        "Face's.",
        empty="random weights",
        title="From",
        option=Option("from", "REF"),
    )


def teacher(position: int) -> Any:
    return field(
        position,
        "",
        "Pre-trained model that the network learns from beside the text: its digest (or beginning), a URL, latest. "
        "DistilBERT and TinyBERT need one.",
        empty="the text alone",
        title="Teacher",
        option=MODEL,
    )


def graph(position: int) -> Any:
    return field(
        position,
        "",
        "Knowledge graph whose entities stand beside words, for ERNIE: the folder of its files, or the digest (or its "
        "beginning) of vectors that are learnt from it.",
        empty="for ERNIE the generated, synthetic world's",
        title="Graph",
        option=Option(metavar="GRAPH"),
    )


def links(position: int) -> Any:
    return field(
        position,
        "",
        "What names in single books mean, for ERNIE: a file whose rows are a book's file, a name in it and the graph's "
        "entity, between tabs.",
        empty="names mean what the graph calls so",
        title="Links",
        option=Option(metavar="FILE"),
    )


def nproc(position: int) -> Any:
    text = "Training processes for pre-training, one a GPU."
    return field(position, 0, text, empty="as many as a machine has GPUs; without any, one", ge=0)


def shard(position: int) -> Any:
    text = "Weights, gradients and optimiser sharded over the processes: for models beyond one GPU. Same results."
    return field(position, False, text)


def family(position: int) -> Any:
    return field(
        position,
        "gpt",
        "Network, text and what is learnt: decoders gpt, gpt2, gptbert (next tokens and hidden words); encoders bert, "
        "albert, electra; distilbert and tinybert, which learn from a teacher; ernie, which knows a graph's entities.",
        title="Family",
        option=Option(metavar="NAME", help=f"network and text: {', '.join(offered())}"),
    )


def jobs(position: int) -> Any:
    return field(position, 0, "Fine-tunes at the same time.", empty="one a core, or one a GPU; 16 on Slurm", ge=0)


def dask(position: int) -> Any:
    text = "Dask scheduler address for the corpus stages."
    return field(position, "", text, empty="this machine", option=Option(metavar="ADDRESS", help=text[:-1]))


def out(position: int, what: str = "the tables (Markdown, CSV) and figures (PNG)") -> Any:
    return field(position, "", f"A local folder for {what}.", empty="none", option=Option(metavar="FOLDER"))


def published(position: int, name: str, text: str, **limits: Unpack[Limits]) -> Any:
    """A setting of fine-tuning, which the paper gives: section 4.1."""
    default = getattr(FinetuneConfig(), name)
    option = Option(help=spoken(text))
    return field(position, default, f"{text} (paper: {as_typed(default)}).", option=option, **limits)


def from_task(position: int, targets: str) -> Any:
    """:param targets: the tasks that start so."""
    text = f"{targets} from a model that is first fine-tuned on this task, e.g. mnli."
    return field(position, "", text, empty="from the checkpoint itself", option=Option(metavar="TASK"))


def rates(position: int) -> Any:
    return field(
        position,
        [],
        "Learning rates to try with seed 0; the one with the best dev score has all seeds, in place of the rate.",
        empty="none is tried",
        option=Option(metavar="LR,LR", read=learning_rates),
    )
