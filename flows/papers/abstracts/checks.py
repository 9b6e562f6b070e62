"""What the forms of language models that write are given, checked before torch is imported."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any

from flows.forms.checks import check_corpus
from flows.forms.references import pretrained_model
from flows.forms.settings import chosen_abstracts, language_overrides
from gptcore.base.errors import InputError
from gptcore.base.filesystems import require_address
from gptcore.config.sizes import PROMPT_SETTINGS, SIZES, shape_given, sized_preset
from gptcore.nlu.own_task import is_task_file
from gptcore.papers.abstracts.config import BY_SIZE, TABLES, AdaptConfig
from gptcore.papers.prompting.tasks import PromptTask, available_prompt_tasks, prompt_task
from tasks.store.store import Store


def check_papers(form: Any) -> None:
    """See that what a form about papers names is there: settings, the archive's files.

    How long blocks may be depends on which section of the settings is used: :func:`check_blocks`.

    :raises InputError: for the first that is not there, or that nothing would read.
    """
    from gptcore.papers.abstracts.documents import archive_files

    chosen_abstracts(form)
    if form.arxiv:
        archive_files(form.arxiv)
    check_no_pretraining(form)


def check_start_of_abstracts(store: Store, form: Any) -> None:
    """:raises InputError: the store's model that a form about papers starts from is not there, or reads other text."""
    from tasks.stages.tokenizer import check_kind, is_model_folder
    from tasks.store.lineage import tokenizer_of

    if form.checkpoint and not is_model_folder(form.checkpoint):  # which is looked at as it is imported
        preset, _ = chosen_abstracts(form)
        check_kind(store, tokenizer_of(store, pretrained_model(store, form.checkpoint)), preset.tokenizer)


def check_beside(store: Store, form: Any) -> None:
    """:raises InputError: a further model for abstracts is not there, or reads other text."""
    for ref in form.beside:
        require_address(ref, "--beside")
        check_start_of_abstracts(store, form.model_copy(update={"checkpoint": ref}))


def check_no_pretraining(form: Any) -> None:
    """:raises InputError: a model to start from, and settings of another that would be pre-trained."""
    idle = [f"--{name}" for name in ("corpus", "tokenizer") if getattr(form, name)]
    idle += [name for name in language_overrides(form.overrides) if name != "family"]
    if form.checkpoint and idle:
        raise InputError(f"--checkpoint: nothing is pre-trained then; expected no {idle[0]} beside it")


def chosen_tables(form: Any) -> list[str]:
    """The tables to make: those wanted, else every one.

    :raises InputError: models of other sizes are wanted where nothing is pre-trained, or where all would have one size.
    """
    if not form.checkpoint and not shape_given(form.overrides):
        return list(form.only) or list(TABLES)
    if BY_SIZE in form.only:
        given = "--checkpoint" if form.checkpoint else shape_given(form.overrides)[0]
        raise InputError(f"--only {BY_SIZE}: each size is pre-trained with its own shape; expected no {given}")
    return list(form.only) or [name for name in TABLES if name != BY_SIZE]


def check_blocks(form: Any, section: str) -> None:
    """See that the model has positions for the blocks of one section of the settings, as far as it is known yet.

    :param section: "adapt", or "star" for the tables.
    :raises InputError: the model has fewer positions.
    """
    from tasks.stages.tokenizer import is_model_folder

    if is_model_folder(form.checkpoint):
        return
    preset, own = chosen_abstracts(form)
    n_ctx = preset.model.n_ctx
    if form.checkpoint:
        store = Store(form.store)
        n_ctx = store.manifest(pretrained_model(store, form.checkpoint))["config"]["model"]["n_ctx"]
    check_positions(section, [getattr(own, section)], n_ctx)


def check_positions(section: str, configs: Iterable[AdaptConfig], n_ctx: int) -> None:
    """:raises InputError: blocks of more tokens than the model has positions; ``section``: where the settings are."""
    if (size := max(config.block_size for config in configs)) > n_ctx:
        raise InputError(f"{section}.block_size = {size}: expected {n_ctx} or less, the model's n_ctx")


def check_prompts(form: Any) -> None:
    """See that what a form about prompts names is there: the models, or what they are pre-trained on; tasks with room.

    :raises InputError: for the first that is not there.
    """
    from tasks.stages.tokenizer import is_model_folder

    store = Store(form.store)
    if form.checkpoints and (form.corpus or form.tokenizer or form.overrides):
        idle = "--tokenizer" if form.tokenizer else "--corpus and no --config"
        raise InputError(f"--checkpoint: nothing is pre-trained then; expected no {idle} beside it")
    for ref in form.checkpoints:
        if not is_model_folder(ref):
            pretrained_model(store, ref)
    room = least_room(form)
    check_corpus(form.corpus)
    tasks = form.tasks if form.datasets else [name for name in form.tasks if is_task_file(name)]
    if form.datasets or tasks:  # the generated world's are there once it is made
        tasks_with_room(tasks, form.datasets, room if not form.checkpoints else None)


def least_room(form: Any) -> int:
    """The fewest positions of the sizes that a form would pre-train.

    :raises InputError: settings that do not fit, or that would make the sizes one.
    """
    if same := shape_given(form.overrides):
        raise InputError(f"overrides: {same[0]}: expected none, as each of the preset's sizes has its own")
    if form.overrides.get("family", "gpt2") != "gpt2":
        raise InputError(f"overrides: family = {form.overrides['family']!r}; expected gpt2")
    more = PROMPT_SETTINGS[form.preset]
    return min(sized_preset(form.preset, size, more, form.overrides).model.n_ctx for size in SIZES[form.preset])


def tasks_with_room(wanted: Sequence[str], datasets_url: str, n_ctx: int | None) -> list[PromptTask]:
    """The tasks to ask: those wanted, else every one whose data is there and whose answers a model has positions for.

    :param wanted: names, and addresses of files with users' own tasks.
    :raises InputError: one that is wanted has no data or too little room; or none is wanted and all have too little.
    """
    named = [name for name in wanted if not is_task_file(name)]
    there = available_prompt_tasks(datasets_url) if named or not wanted else []
    if missing := [name for name in named if name not in there]:
        raise InputError(f"{datasets_url}: no data for {', '.join(missing)}; found {', '.join(there)}")
    tasks = [prompt_task(name, datasets_url) for name in wanted or there]
    if n_ctx is None:
        return tasks
    found = tasks if wanted else [task for task in tasks if task.has_room(n_ctx)]
    for task in tasks if wanted or not found else ():
        task.check_room(n_ctx)
    return found
