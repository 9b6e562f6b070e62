"""The twelve datasets of the leaderboard as prompts, each by the template in its entry of the registry."""

from __future__ import annotations

from gptcore.nlu.readers import Example, load_task
from gptcore.nlu.registry import Prompt, TaskSpec
from gptcore.prompting.items import NOTHING, Item, Rows


def rows(spec: TaskSpec, datasets_url: str) -> Rows:
    """Dev rows as they are asked, train rows as examples.

    :raises InputError: a missing file or a broken row.
    """
    asked, pool = (
        [item(spec, row) for row in load_task(spec.name, datasets_url, split) if row.label is not None]
        for split in ("dev", "train")
    )
    return Rows(asked, pool)


def plain(spec: TaskSpec) -> Prompt:
    """The template of a task that has none of its own."""
    lines = "\n".join(f"{{{place}}}" for place in range(len(spec.fields)))
    if spec.form == "choices":
        return Prompt(f"{lines}\nAnswer:")
    if spec.score_range:
        low, high = map(int, spec.score_range)
        return Prompt(f"{lines}\nFrom {low} to {high}:", tuple(map(str, range(low, high + 1))))
    return Prompt(f"{lines}\nAnswer:", spec.labels)


def item(spec: TaskSpec, row: Example) -> Item:
    """A row by its task's template."""
    prompt, fields = spec.prompt or plain(spec), [" ".join(text.split()) for text in row.fields]
    return Item(
        questions=(prompt.question.format(*fields),),
        answers=prompt.answers or tuple(" ".join(choice.split()) for choice in row.choices),
        right=row.label,
        context=prompt.context.format(*fields),
        empty=prompt.question.format(*[NOTHING] * len(fields)),
        subset=row.subset,
    )
