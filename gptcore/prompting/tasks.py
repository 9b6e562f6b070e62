"""The tasks that are put to a model as prompts: the twelve of the leaderboard, and what GPT-2 was asked beside them."""

from __future__ import annotations

import functools
from collections.abc import Callable, Sequence
from dataclasses import dataclass

from gptcore.errors import InputError
from gptcore.nlu.readers import available, has_folder
from gptcore.nlu.registry import REGISTRY
from gptcore.prompting import classification, measures, reading, schemas
from gptcore.prompting.items import Rows, Writing


@dataclass(frozen=True)
class Published:
    """A number of a paper."""

    who: str
    score: float
    """In per cent."""


@dataclass(frozen=True)
class PromptTask:
    """One task."""

    name: str
    folder: str
    metric: str
    """The headline's."""
    read: Callable[[str], Rows]
    """From the folder of datasets.

    :raises InputError: a missing file or a broken row.
    """
    writing: Writing | None = None
    """How an answer is written; None: it is chosen."""
    measure: measures.Measure | None = None
    """How written answers are counted."""
    word: bool = False
    """The answer is one word, whose probability counts too (LAMBADA)."""
    per_token: bool = False
    """Candidates of different lengths compare by their probability a token (GPT-3's paper, section 2.4)."""
    published: Sequence[Published] = ()


_TWELVE = tuple(
    PromptTask(
        spec.name,
        spec.folder,
        spec.headline,
        functools.partial(classification.rows, spec),
        per_token=spec.form == "choices",
    )
    for spec in REGISTRY.values()
)
_LINE = Writing(max_tokens=60)
_WORD = Writing(max_tokens=6)

PROMPT_TASKS: dict[str, PromptTask] = {
    task.name: task
    for task in (
        *_TWELVE,
        PromptTask(
            "lambada",
            "LAMBADA",
            "accuracy",
            reading.lambada,
            _WORD,
            measures.last_word,
            word=True,
        ),
        PromptTask(
            "lambada-cloze",
            "LAMBADA",
            "accuracy",
            reading.lambada_cloze,
            _WORD,
            measures.last_word,
            word=True,
        ),
        PromptTask("dprd", "DPRD", "accuracy", schemas.dprd, per_token=True),
        PromptTask("wsc273", "WSC273", "accuracy", schemas.wsc273, per_token=True),
        PromptTask(
            "summaries",
            "CNNDM",
            "rouge",
            reading.summaries,
            Writing(max_tokens=100, top_k=2, one_line=False, sentences=3),
            measures.rouge,
            published=(
                Published("Bottom-Up Sum", 32.75),
                Published("Lede-3", 31.55),
                Published("GPT-2 TL;DR:", 21.40),
                Published("Random-3", 20.98),
                Published("GPT-2 no hint", 15.03),
            ),
        ),
        PromptTask(
            "en-fr",
            "WMT14",
            "bleu",
            functools.partial(reading.translations, source="en", target="fr"),
            _LINE,
            measures.bleu,
            published=(Published("GPT-2 1542M", 5.0),),
        ),
        PromptTask(
            "fr-en",
            "WMT14",
            "bleu",
            functools.partial(reading.translations, source="fr", target="en"),
            _LINE,
            measures.bleu,
        ),
        PromptTask(
            "squad",
            "SQuAD",
            "f1",
            reading.questions,
            Writing(max_tokens=20),
            measures.questions,
            published=(Published("GPT-2 1542M, on CoQA", 55.0),),
        ),
        PromptTask("games", "Games", "accuracy", reading.games),
    )
}
"""Name -> task. Published numbers: GPT-2's paper, its Table 4 and sections 3.5 and 3.7."""


def prompt_task(name: str) -> PromptTask:
    """A task by its name.

    :raises InputError: there is none of that name.
    """
    if name not in PROMPT_TASKS:
        raise InputError(f"task: found {name!r}, expected one of {', '.join(PROMPT_TASKS)}")
    return PROMPT_TASKS[name]


def available_prompt_tasks(datasets_url: str) -> list[str]:
    """Tasks whose folder is there.

    :raises InputError: there is none.
    """
    twelve = available(datasets_url)
    found = [
        name
        for name, task in PROMPT_TASKS.items()
        if (name in twelve if name in REGISTRY else has_folder(task.folder, datasets_url))
    ]
    if not found:
        raise InputError(f"{datasets_url}: no data for any of {', '.join(PROMPT_TASKS)}")
    return found


def fingerprint(name: str, datasets_url: str) -> str:
    """SHA-256 of what a task reads: of its rows, so that files which say the same are the same.

    :raises InputError: a missing file or a broken row.
    """
    from gptcore.files import sha256_json

    rows = prompt_task(name).read(datasets_url)
    return sha256_json([[_recorded(item) for item in part] for part in (rows.asked, rows.pool)])


def _recorded(item: object) -> list[object]:
    return list(vars(item).values())
