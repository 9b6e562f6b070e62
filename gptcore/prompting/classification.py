"""The twelve datasets of the leaderboard as prompts, each by the template in its entry of the registry."""

from __future__ import annotations

from gptcore.nlu.readers import Example, load_task
from gptcore.nlu.registry import TaskSpec
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


def item(spec: TaskSpec, row: Example) -> Item:
    """A row by its task's template."""
    prompt, fields = spec.prompt, [" ".join(text.split()) for text in row.fields]
    return Item(
        questions=(prompt.question.format(*fields),),
        answers=prompt.answers or tuple(" ".join(choice.split()) for choice in row.choices),
        right=row.label,
        context=prompt.context.format(*fields),
        empty=prompt.question.format(*[NOTHING] * len(fields)),
        subset=row.subset,
    )
