"""The tasks that are put to a model as prompts: the twelve of the leaderboard, and what GPT-2 was asked beside them."""

from __future__ import annotations

import functools
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from typing import Any

from gptcore.errors import InputError
from gptcore.files import sha256_json
from gptcore.nlu.readers import available, has_folder
from gptcore.nlu.registry import REGISTRY
from gptcore.prompting import classification, measures, reading, schemas
from gptcore.prompting.items import Item, Rows, Writing
from gptcore.settings import recorded


@dataclass(frozen=True)
class Published:
    """A number of a paper."""

    who: str
    score: float
    """In per cent."""
    parts: tuple[float, ...] = ()
    """What the score is the mean of: ROUGE-1, -2 and -L."""


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
    baselines: Callable[[Sequence[Item]], Iterable[tuple[str, list[str]]]] | None = None
    """Names and answers that are given without a model; the first is what a blind guess gets."""
    published: Sequence[Published] = ()

    def has_room(self, n_ctx: int) -> bool:
        """Whether a model has positions for the task's written answers, and as many for what it is asked."""
        return self.writing is None or self.writing.room(n_ctx) >= self.writing.needed

    def check_room(self, n_ctx: int) -> None:
        """The same as an error.

        :raises InputError: it has not.
        """
        if self.writing is not None and not self.has_room(n_ctx):
            raise InputError(
                f"{self.name}: found a model with n_ctx = {n_ctx}, expected {2 * self.writing.needed} or more, "
                f"as answers have {self.writing.needed} tokens"
            )

    @property
    def recorded(self) -> dict[str, Any]:
        """What of it decides the scores, beside the rows."""
        writing = None if self.writing is None else recorded(self.writing)
        return {"metric": self.metric, "writing": writing, "word": self.word, "per_token": self.per_token}


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
_LINE = Writing(max_tokens=128, least=60)  # a third of WMT14's French is longer than 60 pieces
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
            baselines=measures.article_baselines,
            published=(
                Published("Bottom-Up Sum", 32.75, (41.22, 18.68, 38.34)),
                Published("Lede-3", 31.55, (40.38, 17.66, 36.62)),
                Published("Seq2Seq + Attn", 23.99, (31.33, 11.81, 28.83)),
                Published("GPT-2 TL;DR:", 21.40, (29.34, 8.27, 26.58)),
                Published("Random-3", 20.98, (28.78, 8.63, 25.52)),
                Published("GPT-2 no hint", 15.03, (21.58, 4.03, 19.47)),
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
            baselines=measures.always_unknown,
            published=(Published("GPT-2 1542M, on CoQA, all of whose questions have answers", 55.0),),
        ),
        *(
            PromptTask(kind, "Games", "accuracy", functools.partial(reading.games, kind=kind))
            for kind in ("recall", "sorting")
        ),
    )
}
"""Name -> task. Published numbers: GPT-2's paper, its Table 4, sections 3.5 and 3.7."""


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


def read_rows(name: str, datasets_url: str) -> Rows:
    """The rows of a task.

    :raises InputError: an unknown task, a missing file, a broken row, or none to ask.
    """
    rows = prompt_task(name).read(datasets_url)
    if not rows.asked:
        folder = f"{datasets_url.rstrip('/')}/{PROMPT_TASKS[name].folder}"
        raise InputError(f"{folder}: found no row to ask, expected one or more")
    return rows


def digest(rows: Rows) -> str:
    """SHA-256 of rows: files which say the same are the same."""
    told = [rows.between] if rows.between != Rows.between else []
    items = ([list(vars(item).values()) for item in part] for part in (rows.asked, rows.pool))
    return sha256_json([rows.apart, *told, *items])
