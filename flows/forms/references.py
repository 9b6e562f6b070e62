"""The model that a `--checkpoint` or a `--model` means: one of the names below, whatever command it is given to.

    latest, best            of those that fit; best on dev rows, of fine-tuned models
    a digest                or its first digits; words around it, as labels, runs and rows have them, are left out
    a row's digest          of the leaderboard: its fine-tuned model of the task, else its pre-trained model
    an address              of the artifact, in any store
    a name                  of an imported model
    a folder                of Hugging Face's kind, or its address (s3://..., hf://ORG/NAME@REVISION): it is imported
    a page                  of an MLflow run: that of a model, or of a row
    models:/NAME@ALIAS      or models:/NAME/VERSION, of MLflow's registry

The one place where store and tracker meet: the store knows nothing of the tracker.
"""

from __future__ import annotations

import re
import sys
from collections.abc import Sequence
from itertools import islice

from flows.plugins import added
from gptcore.base.errors import InputError, near, nearest
from gptcore.nlu.own_task import is_task_file, own_task_name
from gptcore.nlu.registry import BEYOND, REGISTRY, task_spec
from tasks.report.rows import Row
from tasks.report.suites import our_rows
from tasks.store import references
from tasks.store.artifact import Artifact
from tasks.store.counts import FinetuneCounts
from tasks.store.lineage import home_of, located
from tasks.store.references import CHECKPOINTS
from tasks.store.store import Store
from tasks.tracking.registry import SCHEME, model_of_run, registered_artifact
from tasks.tracking.tracker import Tracker

WORDS = {
    "pretrain": "a pre-trained model",
    "finetune": "a fine-tuned model",
    "imported": "an imported model",
    **added("models"),
}
"""Stage -> what its artifacts are to people."""
_CHOSEN = ("latest", "best")
_NEAR = 50  # models of each stage whose names are compared with one that is none
_ROW = re.compile(r"[0-9a-f]{6}")
"""How a row's digest begins, which has as many digits where it is printed."""
_DIGITS_AMONG_WORDS = re.compile(r"(?<!\S)[0-9a-f]{6,64}(?!\S)")
_PAGE = re.compile(r"/runs/([0-9a-f]{32})(?![0-9a-f])")


def pretrained_model(store: Store, ref: str, generates: bool = False) -> Artifact:
    """The checkpoint that any name stands for; see :func:`tasks.store.references.pretrained_model`.

    A folder's model is imported, which costs what copying it does.

    :param generates: whether "latest" means one that generates text.
    :raises InputError: where none fits, or several do, or the folder's cannot be read.
    """
    return _from_folder(store, ref) or references.pretrained_model(store, in_store(store, ref, CHECKPOINTS), generates)


def teacher_model(store: Store, ref: str) -> Artifact:
    """The checkpoint that any name stands for; see :func:`tasks.store.references.teacher_model`.

    :raises InputError: where none fits, or several do, or a folder's cannot be read.
    """
    return _from_folder(store, ref) or references.teacher_model(store, in_store(store, ref, CHECKPOINTS))


def _from_folder(store: Store, ref: str) -> Artifact | None:
    """The model in a folder of Hugging Face's kind, imported; None where ``ref`` is no such folder.

    A folder that is called as a model of the store is meant by its path alone: ./latest.
    """
    named = "/" not in ref and (ref in _CHOSEN or ref in references.imported_names(store))
    if named or not references.is_model_folder(ref):
        return None
    print(f"{'import':<11} {ref}", file=sys.stderr, flush=True)
    from tasks.stages.imported import import_model  # brings Prefect, which a digest has no need of

    return import_model.fn(store, ref)


def fine_tuned_model(store: Store, ref: str, task: str) -> Artifact:
    """The `finetune` artifact that any name stands for; see :func:`tasks.store.references.fine_tuned_model`.

    Of a row's models for the task, as of several seeds, the one of best dev score.

    :raises InputError: where none fits, several do, or the one that does is of another task.
    """
    ref = in_store(store, ref, ("finetune",), task)
    check_address(ref, ("finetune",))
    return references.fine_tuned_model(store, ref, task)


def any_model(store: Store, ref: str) -> Artifact:
    """A model of the store, or of another one whose address ``ref`` is: pre-trained, or fine-tuned in either way.

    :raises InputError: where none fits, or several do.
    """
    if (imported := _from_folder(store, ref)) is not None:
        return imported
    ref = in_store(store, ref, tuple(WORDS))
    stage = check_address(ref, tuple(WORDS)) or next((name for name in WORDS if store.starting(name, ref)), "pretrain")
    if stage in CHECKPOINTS:
        return references.pretrained_model(store, ref, generates=True)
    return store.resolve(ref, stage)


def model_in_words(artifact: Artifact) -> str:
    """A model for people who have called it best, or by another name: its digest, and what that is."""
    home = home_of(artifact)
    if artifact.stage in CHECKPOINTS:
        return references.checkpoint_label(home, artifact)
    if artifact.stage != "finetune":
        return f"{artifact.short} {WORDS[artifact.stage]}"
    config, counts = home.manifest(artifact)["config"], FinetuneCounts.of(home, artifact)
    seed, score = config["finetune"]["seed"], counts.scores["dev/score"]
    return f"{artifact.short} {config['task']} seed {seed}, dev score {score:.1f}"


def named_task(store: Store, task: str, in_folder: bool = False) -> str:
    """The name of a task: one with an entry, a user's own by its file, or one that the store has a model for.

    :param in_folder: whether the model is in a folder, which alone knows its task.
    :raises InputError: an unknown task.
    """
    if is_task_file(task):
        return own_task_name(task)
    own = () if in_folder or task in REGISTRY else references.fine_tuned_tasks(store)
    if in_folder or task in own:
        return task
    if meant := near(task, own):
        raise InputError(f"task: found {task!r}, did you mean {meant}?")
    if own and task not in BEYOND:
        raise InputError(f"task: found {task!r}, {nearest(task, dict.fromkeys([*own, *REGISTRY, *BEYOND]))}")
    return task_spec(task).name


def check_address(ref: str, stages: tuple[str, ...]) -> str | None:
    """The stage that an address names; None where ``ref`` is no address."""
    if "/" not in ref:
        return None
    stage = f"/{ref.rstrip('/')}".split("/")[-2]  # the store itself may lie in a folder of such a name
    if stage in stages:
        return stage
    raise InputError(
        f"--model: found {ref!r}, expected an address with /{stages[0]}/<digest>, or a model's folder and --tokenizer"
    )


def in_store(store: Store, ref: str, stages: tuple[str, ...], task: str = "") -> str:
    """A model's name in the store's own words: its whole digest, or its address where ``store`` lacks it.

    Latest, best and an address stay as they are.

    :param stages: of which the model may be: keys of :data:`WORDS`.
    :param task: whose fine-tuned model a row stands for; empty: it stands for its pre-trained model.
    :raises InputError: where none fits, or several do; the line says what is there.
    """
    if page := _PAGE.search(ref):
        ref = model_of_run(Tracker(), page[1])
    if ref.startswith(SCHEME):
        artifact = registered_artifact(Tracker(), ref)
    elif ref == "best" and not task:
        raise InputError("best: of fine-tuned models of one task; here expected latest, or any name of a model")
    elif "/" in ref or ref in _CHOSEN:
        return ref
    elif "imported" in stages and (named := references.imported_names(store).get(ref)):
        artifact = named
    else:
        words = _DIGITS_AMONG_WORDS.search(ref)
        artifact = _with_digits(store, words[0] if words else ref, stages, task)
    if artifact.stage not in stages:
        expected = " or ".join(WORDS[stage] for stage in stages)
        raise InputError(f"{ref}: found {WORDS.get(artifact.stage, artifact.stage)}, expected {expected}")
    return artifact.digest if store.find(artifact.stage, artifact.digest) else artifact.url


def _with_digits(store: Store, digits: str, stages: Sequence[str], task: str) -> Artifact:
    """The one model whose digest begins so, or the one that the row stands for whose digest does.

    :raises InputError: there is none, or several.
    """
    digits = digits.lower()
    found = [artifact for stage in stages for artifact in store.starting(stage, digits)]
    rows = our_rows(ask=not found and _ROW.match(digits) is not None)
    meant = [row for row in rows if _ROW.match(digits) and row.suite.startswith(digits)]
    if len(found) + len(meant) > 1:
        named = [f"{each.short} ({WORDS[each.stage]})" for each in found] + [f"{row.name} (a row)" for row in meant]
        raise InputError(f"{digits}: found {len(named)} of this name, {', '.join(named)}; expected a longer digest")
    if found:
        return found[0]
    if meant:
        return _of_row(store, meant[0], task)
    names = [record.artifact.short for stage in stages for record in islice(store.newest(stage), _NEAR)]
    imported = references.imported_names(store) if "imported" in stages else ()
    starts = {name[: len(digits)]: name for name in (*(row.suite[:6] for row in rows), *names, *imported, *_CHOSEN)}
    close = near(digits, starts)
    told = f"; did you mean {starts[close]}?" if close else f"; rows: {', '.join(row.name for row in rows[:5])}"
    raise InputError(f"{store.missing(digits, *stages)}{told if close or rows else ''}")


def _of_row(store: Store, row: Row, task: str) -> Artifact:
    """The model that a row of the leaderboard stands for, in ``store`` or where the row's other models are.

    :raises InputError: the row has none, or it is no longer there.
    """
    tuned = [located(Artifact("finetune", url.rpartition("/")[2], url)) for url in row.models]
    stores = {home.url: home for home in (store, *map(home_of, tuned))}.values()
    for home in stores:
        if task:
            found = references.task_model(home, task, best=True, among={artifact.digest for artifact in tuned})
        else:
            kept = (home.find(stage, row.checkpoint) for stage in CHECKPOINTS) if row.checkpoint else ()
            found = next(filter(None, kept), None)
        if found:
            return found
    wanted = f"fine-tuned model for {task}" if task else "pre-trained model"
    if not task and not row.checkpoint:
        raise InputError(f"{row.name}: a row that starts from random weights, expected one with a {wanted}")
    raise InputError(f"{row.name}: found no {wanted} of this row in {' or '.join(home.url for home in stores)}")
