"""What the forms of abstracts are given, checked before torch is imported."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from flows.forms.references import pretrained_model
from flows.papers.abstracts.settings import chosen_abstracts, language_overrides
from gptcore.base.errors import InputError
from gptcore.base.filesystems import require_address
from gptcore.config.sizes import shape_given
from gptcore.papers.abstracts.config import BY_SIZE, TABLES, AdaptConfig
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
