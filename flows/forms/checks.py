"""What a command is given, checked before Prefect, torch or MLflow are imported: a typing error costs no second.

A run that the Prefect UI starts has passed no command line: its flow resolves the same form by the same functions.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from flows.forms.readers import as_typed, task_name
from flows.forms.references import pretrained_model, teacher_model
from flows.forms.settings import FROM_TASK
from flows.plugins import part
from gptcore.base.addresses import refuse_recorded
from gptcore.base.errors import InputError, require
from gptcore.base.files import require_room
from gptcore.base.filesystems import require_address
from gptcore.config import NetworkConfig, Preset
from gptcore.families import FAMILIES, Family
from gptcore.nlu.own_task import Task, is_task_file, read_own_task
from gptcore.nlu.readers import available, fitted
from gptcore.nlu.registry import REGISTRY, check_source, task_spec
from tasks.store.artifact import Artifact
from tasks.store.counts import TokenizerCounts
from tasks.store.references import check_start, check_teacher, named_tokenizer
from tasks.store.state import note_store
from tasks.store.store import Store

ADDRESS_OPTIONS = {
    name: f"--{name}"
    for name in ("store", "corpus", "arxiv", "datasets", "tokenizer", "checkpoint", "shards", "model", "teacher")
} | {"start": "--from"}
"""Fields that may hold an address -> the option that fills them."""


def check_corpus(corpus: str) -> None:
    """:raises InputError: there is no document; nothing is asked of the generated world, which is none yet."""
    if corpus:
        from gptcore.text.sources import find_sources

        find_sources(corpus)


def check_dask(address: str) -> None:
    """:raises InputError: no scheduler answers at the address that a form may have."""
    if address:
        from tasks.jobs.parallel import connect

        with connect(address):
            pass


def check_sources(preset: Preset, tasks: Sequence[str], datasets_url: str, asked: str = "") -> None:
    """Check that the tasks that start from another's model can, where a form or its settings say so.

    :param tasks: those that are fine-tuned; empty: every one whose data is there.
    :param datasets_url: empty: the generated world, which has them all.
    :param asked: the source that the form names; empty: none.
    :raises InputError: none of the tasks starts from it; or a source is unknown, is the task itself, or has no data.
    """
    there = available(datasets_url) if datasets_url else list(REGISTRY)
    if asked and not set(tasks or there) & set(FROM_TASK):
        known = ", ".join(FROM_TASK)
        raise InputError(f"--from-task {asked}: expected one of {known} among the tasks, to start so")
    for task in chosen_tasks(tasks, datasets_url) if datasets_url else ():
        if (source := task.settings(preset).from_task) is None:
            continue
        setting = f"tasks.{task.name}.from_task = {source!r} (of preset or settings; '' switches it off)"
        if asked and task.name in FROM_TASK:
            setting = f"--from-task {asked}"
        check_source(source, [task.name], setting)
        if source not in there:
            found = ", ".join(there)
            raise InputError(
                f"{setting}: {task.name} starts from its model; {datasets_url}: no data for {source}; found {found}"
            )


def check_sharded(sharded: bool, preset: Preset) -> None:
    """:raises InputError: a training that is to be sharded changes matrices whole
    (:func:`gptcore.training.optim.adam_and_muon`).
    """
    if sharded and preset.pretrain.optimizer == "muon":
        raise InputError(f"--shard: preset {preset.name} has pretrain.optimizer = 'muon'; expected adam beside it")


def check_start_task(source: str, task: str, pretrained: bool, layers: int) -> None:
    """:raises InputError: one task cannot start from the other's model, or not with the form's other choices."""
    if not source:
        return
    check_source(source, [task])
    require(pretrained, f"--from-task {source}: expected no --no-pretraining beside it")
    require(layers < 0, f"--from-task {source}: every block is its model's; expected no --layers beside it")


def check_taught(family: Family, given: Mapping[str, Any]) -> None:
    """Check that a form sets nothing that a student's fine-tunes do not have, as its teacher's models teach them.

    :param given: option -> value, None where it is not given.
    :raises InputError: naming the first option that does not go with it.
    """
    if not family.taught:
        return
    for option, value in given.items():
        if value is not None:
            title = family.title
            raise InputError(f"--{option} {value}: {title} learns its tasks from its teacher's models; expected none")


def check_rates(rates: Sequence[float]) -> None:
    """:raises InputError: a rate is there twice."""
    if twice := next((rate for rate in rates if rates.count(rate) > 1), None):
        raise InputError(f"--rates: found {as_typed(twice)} twice, expected each rate once")


def given_start(store: Store, ref: str, model: NetworkConfig, tokenizer: str) -> Artifact | None:
    """The model whose weights a pre-training goes on from, seen to fit the network and the text; None: there is none.

    :param ref: any name of a checkpoint, or empty.
    :param tokenizer: the tokenizer's digest; empty where it is yet to be learnt.
    :raises InputError: the model is not there, or does not fit.
    """
    start = pretrained_model(store, ref) if ref else None
    if start:
        check_start(store, start, model, tokenizer)
    return start


def check_graph(store: Store, graph: str, family: str, links: str = "") -> None:
    """Check that the knowledge graph and the links that a form may name are there, and that its family knows entities.

    :raises InputError: they are not, or the family knows none.
    """
    for option, value in (("graph", graph), ("links", links)):
        if value and not FAMILIES[family].knowledge:
            title = FAMILIES[family].title
            raise InputError(f"--{option} {value}: {title} has no entities beside words; expected no {option}")
    if FAMILIES[family].knowledge:
        part("check_graph")(store, graph, links)


def given_teacher(store: Store, ref: str, preset: Preset, start: str = "") -> Artifact | None:
    """The model that a network learns from, seen to fit it; None where ``ref`` is empty.

    :param start: the model whose weights it goes on from; by default (empty) it begins with random ones.
    :raises InputError: there is none, it does not fit, or both it and ``start`` give the first weights.
    """
    teacher = teacher_model(store, ref) if ref else None
    check_teacher(store, teacher, preset.model, preset.distil, start)
    return teacher


def is_address(graph: str) -> bool:
    """Whether a graph is named by its folder, not by what was made from it."""
    return "/" in graph or Path(graph).is_dir()


def check_addresses(given: Mapping[str, Any]) -> Store:
    """Check that the addresses among a form's fields can be used: their server, the log-in, the bucket.

    :return: the store that is among them.
    :raises InputError: for the first that cannot, or any text that has a password in it or is signed.
    :raises OSError: the store is empty, and its disk takes nothing.
    """
    require(given["store"], "--store: found nothing, expected a folder or an address")
    refuse_recorded(given)
    for name, option in ADDRESS_OPTIONS.items():
        require_address(given.get(name) or "", option)
    for ref in given.get("checkpoints", ()):
        require_address(ref, "--checkpoint")
    store = Store(given["store"])
    note_store(store.url)
    if not (store.scratch.is_dir() and any(store.scratch.iterdir())):
        require_room(store.scratch)  # nothing is there yet, so that all is to be made: said before a server starts
    return store


def given_tokenizer(store: Store, ref: str) -> Artifact | str | None:
    """The tokenizer that ``ref`` names, or the folder that holds one; None where it is empty.

    :raises InputError: there is none.
    """
    return named_tokenizer(store, ref) if ref else None


def digest_of(store: Store, tokenizer: Artifact | str | None) -> str:
    """What tells a tokenizer's texts from those of others; empty where there is none.

    :raises InputError: it is broken.
    """
    if isinstance(tokenizer, Artifact):
        return TokenizerCounts.of(store, tokenizer).tokenizer_digest
    if tokenizer is None:
        return ""
    from gptcore.text.tokenizer import Tokenizer

    return Tokenizer.load(tokenizer).digest


def datasets_folder(store: Store, datasets: str, tasks: Sequence[str] = ()) -> str:
    """The datasets asked for, else the generated world that the store holds; empty where no task needs either.

    :param tasks: those that are wanted, as :func:`chosen_tasks` takes them.
    :raises InputError: neither is there.
    """
    if datasets:
        return datasets
    world = next(store.newest("storyworld"), None)
    if world is None and tasks and all(map(is_task_file, tasks)):
        return ""
    if world is None:
        raise InputError(f"--datasets: none given, and {store.url} holds no generated world; give the datasets' folder")
    return str(store.local(world.artifact, "datasets"))


def chosen_tasks(wanted: Sequence[str], datasets_url: str) -> list[Task]:
    """The tasks to run: those asked for, else every one of the twelve whose folder is there.

    :param wanted: names of the twelve, and addresses of files with users' own tasks.
    :param datasets_url: may be empty where only own tasks are wanted.
    :raises InputError: none is there, or one that was asked for is not, or two have one name.
    """
    own = {name: read_own_task(name, datasets_url) for name in wanted if is_task_file(name)}
    if own and len(own) == len(wanted):
        return _each_once(list(own.values()))
    there = available(datasets_url, wanted)
    if missing := [name for name in wanted if name not in there and name not in own]:
        raise InputError(f"{datasets_url}: no data for {', '.join(missing)}; found {', '.join(there) or 'no dataset'}")
    require(there, f"{datasets_url}: no dataset found; expected sub-folders such as MNLI, SST-2, RACE")
    return _each_once([own.get(name) or Task(fitted(task_spec(name), datasets_url)) for name in wanted or there])


def task_file(file: str, datasets_url: str) -> str:
    """The address of a user's own task's file, from the root, once it is read.

    :raises InputError: it is no task's file; names its field.
    """
    require(is_task_file(file), f"--task: found {file!r}, expected a task's TOML file")
    address = task_name(file)
    read_own_task(address, datasets_url)
    return address


def check_tasks(wanted: Sequence[str], datasets_url: str) -> None:
    """Check that the tasks are there; of the generated world, which may be none yet, nothing is asked.

    :param datasets_url: empty: the generated world.
    :raises InputError: as :func:`chosen_tasks`.
    """
    if datasets_url:
        chosen_tasks(wanted, datasets_url)
    elif own := [name for name in wanted if is_task_file(name)]:
        chosen_tasks(own, "")


def _each_once(tasks: list[Task]) -> list[Task]:
    names = [task.name for task in tasks]
    if twice := next((name for name in names if names.count(name) > 1), None):
        raise InputError(f"tasks: found {twice} twice, expected each name once")
    return tasks
