"""What a person means by a REF: a digest or its beginning, an artifact's address, latest, or best of the models."""

from __future__ import annotations

import dataclasses
import re
from collections.abc import Collection, Sequence
from pathlib import Path

from gptcore.base.errors import InputError
from gptcore.base.files import parse_json
from gptcore.base.filesystems import exists, file_system
from gptcore.config import DistilConfig, NetworkConfig, check_same_shape, distillation, network_config
from gptcore.families import FAMILIES, recorded_family
from tasks.store.artifact import Artifact, is_digest
from tasks.store.counts import DatasetCounts, FinetuneCounts, ImportedCounts, PretrainCounts, WeightsCounts
from tasks.store.lineage import Lineage, ancestor, home_of, located, made_before
from tasks.store.manifest import Manifest
from tasks.store.records import Record
from tasks.store.store import Store

WEIGHTS = ("model.safetensors", "pytorch_model.bin")
"""The files of a model's weights in a folder of Hugging Face's kind, the one that is read first; or shards of one."""
CHECKPOINTS = ("pretrain", "imported")
"""The stages of the models that are fine-tuned, scored and generated with: trained here, or taken as they are."""
_TOKENIZER = re.compile(r"/tokenizer/[0-9a-f]{4,64}/?$")


def teacher_model(store: Store, ref: str) -> Artifact:
    """The model that a student is to learn from; latest is the newest pre-trained one that is no student itself.

    :raises InputError: where none fits, or several do.
    """
    if (named := _named_checkpoint(store, ref)) is not None:
        return named
    for record in store.records("pretrain"):
        family = recorded_family(record.manifest["config"]["model"])
        if family.distillation and "teacher" not in record.manifest["inputs"] and store.whole(record):
            return record.artifact
    raise InputError(f"--teacher latest: found no pre-trained Transformer in {store.url}, expected one")


def pretrained_model(store: Store, ref: str, generates: bool = False) -> Artifact:
    """The checkpoint that ``ref`` names; latest is the newest pre-trained one that no ablation was trained for, or the
    newest imported one in a store that has no other.

    The LSTM of Table 5 lies beside the others and is newer after that analysis; it is asked for by its digest.

    :param ref: a digest or its beginning, an address, or latest.
    :param generates: whether latest has to be a model that predicts the next token of a text.
    :raises InputError: where none fits, or several do.
    """
    if (named := _named_checkpoint(store, ref)) is not None:
        return named
    stages = ("imported",) if "/imported/" in ref else ("pretrain",) if "/pretrain/" in ref else CHECKPOINTS
    store, _ = _where(store, ref, stages[0])
    others = set()
    for record in (record for stage in stages for record in store.records(stage)):  # of each stage the newest first
        family = recorded_family(record.manifest["config"]["model"])
        if not store.whole(record):
            continue
        if not family.ablation and (family.generates or not generates):
            return record.artifact
        others.add(family.title)
    if others:
        wanted = "one that generates text" if generates else "one that is more than an ablation"
        found = f"found only {', '.join(sorted(others))} in {store.url}"
        raise InputError(f"{stages[0]} 'latest': {found}, expected {wanted}")
    return store.resolve("latest", stages[0])


def _named_checkpoint(store: Store, ref: str) -> Artifact | None:
    """The checkpoint of either stage that ``ref`` names by its digest, an address, or an imported one's name.

    :return: None where it is latest.
    :raises InputError: where none fits, or several do.
    """
    stage = "imported" if "/imported/" in ref else "pretrain"
    home, word = _where(store, ref, stage)
    if word == "latest":
        return None
    if "/" in word:  # no artifact's address
        what = f"a folder with config.json and {' or '.join(WEIGHTS)}"
        address = "an address ending in /pretrain/<digest> or /imported/<digest>"
        raise InputError(f"{ref}: found no model there, expected {what}, or {address}")
    fitting = [] if "/" in ref else store.starting("pretrain", word) or store.starting("imported", word)
    return fitting[0] if len(fitting) == 1 else home.resolve(word, stage)


def imported_names(store: Store, but: str = "") -> dict[str, Artifact]:
    """Name -> imported model, the newest of several that older versions gave one name.

    :param but: the digest of a model that is left out.
    """
    records = (record for record in store.records("imported") if record.artifact.digest != but and store.whole(record))
    named = [(ImportedCounts.parse(record.manifest["counts"]).name, record.artifact) for record in records]
    return {name: artifact for name, artifact in reversed(named) if name}


def imported_from(store: Store, address: str, revision: str) -> Artifact | None:
    """The model that was read from an address at a commit of the hub; None: none was."""
    for record in store.records("imported"):
        counts = ImportedCounts.parse(record.manifest["counts"])
        if (counts.address, counts.revision) == (address, revision) and store.whole(record):
            return record.artifact
    return None


def _where(store: Store, ref: str, stage: str) -> tuple[Store, str]:
    """The store that ``ref`` is about, its own where it is an address, and what it asks for there."""
    root, middle, word = ref.rstrip("/").rpartition(f"/{stage}/")
    if middle and is_digest(word) and not Store(root).find(stage, word):  # a page's address of a store that has moved
        return home_of(located(Artifact(stage, word, f"{root}/{stage}/{word}"))), word
    return (Store(root), word) if middle and "/" not in word else (store, ref)


def check_start(store: Store, start: Artifact, model: NetworkConfig, tokenizer_digest: str = "") -> None:
    """Check that pre-training can go on from ``start``.

    :param model: the network to train; its ``n_vocab`` follows from the tokenizer.
    :param tokenizer_digest: of the text to train on; empty: not known yet.
    :raises InputError: another shape or another tokenizer.
    """
    theirs, shape = _vocabulary_and_shape(store, start)
    if tokenizer_digest and theirs != tokenizer_digest:
        tokenizer = ancestor(store, start, "tokenizer").short
        raise InputError(
            f"--from {start.short}: made with the tokenizer {tokenizer} ({theirs[:12]}), the text is encoded with "
            f"{tokenizer_digest[:12]}; expected the same (pipeline --tokenizer {tokenizer})"
        )
    model = dataclasses.replace(model, n_vocab=shape.n_vocab)
    check_same_shape(shape, model.started_from(shape), f"--from {start.short}")


def check_teacher(
    store: Store,
    teacher: Artifact | None,
    model: NetworkConfig,
    distil: DistilConfig | None,
    start: str = "",
    tokenizer_digest: str = "",
) -> None:
    """Check that a network can learn from ``teacher``, and that one which learns from none has no need of any.

    :param model: the network; its ``n_vocab`` follows from the tokenizer.
    :param start: what people call the model whose weights it goes on from; empty: none.
    :param tokenizer_digest: of the text that both read; empty: not known yet.
    :raises InputError: none where one is needed, another tokenizer, a shape that does not fit, or both the teacher and
        ``start`` give the first weights.
    """
    if teacher is None or distil is None:
        if (family := FAMILIES[model.family]).teacher:
            option = f"--family {family.name}: found no --teacher"
            raise InputError(f"{option}, expected one, from which {family.title} learns")
        return
    if start and distil.start == "teacher":
        raise InputError(f"--from {start}: --teacher gives the first weights, too; expected distil.start = random")
    theirs, shape = _vocabulary_and_shape(store, teacher)
    where = f"--teacher {teacher.short}"
    if tokenizer_digest and theirs != tokenizer_digest:
        raise InputError(
            f"{where}: knows the vocabulary {theirs[:12]}, the text is encoded with {tokenizer_digest[:12]}; expected "
            "the same"
        )
    distillation.check_teacher(distil, dataclasses.replace(model, n_vocab=shape.n_vocab), shape, where)


def _vocabulary_and_shape(store: Store, model: Artifact) -> tuple[str, NetworkConfig]:
    manifest = store.manifest(model)
    return WeightsCounts.parse(manifest["counts"]).tokenizer_digest, network_config(manifest["config"]["model"])


def named_tokenizer(store: Store, ref: str) -> Artifact | str:
    """The tokenizer of the store that ``ref`` names, or the folder (any fsspec URL) that holds one.

    :param ref: a digest or its beginning, latest, an artifact's address, or a folder.
    :raises InputError: ``ref`` is no folder, and no tokenizer of the store fits, or several do.
    """
    if "/" not in ref and not Path(ref).is_dir():
        return store.resolve(ref, "tokenizer")
    if not _TOKENIZER.search(ref):
        return ref
    artifact = store.resolve(ref, "tokenizer")
    return artifact if artifact == store.artifact("tokenizer", artifact.digest) else str(store.local(artifact))


def is_model_folder(ref: str) -> bool:
    """Whether ``ref`` is a folder with a model of Hugging Face's kind and its tokenizer."""
    if not ref or ("/" not in ref and not Path(ref).is_dir()):
        return False
    fs, path = file_system(ref)
    return exists(fs, f"{path}/config.json") and any(
        exists(fs, f"{path}/{name}{end}") for name in WEIGHTS for end in ("", ".index.json")
    )


def checkpoint_label(store: Store, artifact: Artifact) -> str:
    """A checkpoint in one line for people, its digest first: "8f3a12cd4e56 4 layers x 128, perplexity 2.6"..."""
    return label_of(Record(artifact, store.manifest(artifact)))


def label_of(record: Record) -> str:
    """:func:`checkpoint_label` of a model whose manifest is at hand."""
    artifact, manifest = record.artifact, record.manifest
    model = network_config(manifest["config"]["model"])
    shape = FAMILIES[model.family].titled(model.shape_in_words)
    if artifact.stage == "imported":
        name = ImportedCounts.parse(manifest["counts"]).name
        return f"{artifact.short} imported {f'{name}, ' if name else ''}{shape}, {manifest['created'][:10]}"
    result = PretrainCounts.parse(manifest["counts"])
    perplexity = f"perplexity {result.validation_perplexity:.3g}"
    seen = f"{result.tokens_seen / 1e6:.3g} M tokens"
    words = {"start": " after", "teacher": ", student of"}
    after = "".join(f"{words[role]} {digest[:12]}" for role, digest in made_before(manifest).items())
    return f"{artifact.short} {shape}, {perplexity}, {seen}{after}, {manifest['created'][:10]}"


def n_parameters(store: Store, model: Artifact) -> int:
    """Weights of a pre-trained or imported model."""
    if (known := WeightsCounts.of(store, model).parameters) is not None:
        return known
    return int(parse_json(store.read(model, "model/meta.json"))["parameters"])


def fine_tuned_model(store: Store, ref: str, task: str) -> Artifact:
    """The `finetune` artifact of a task that ``ref`` names; latest is its newest, best that of the best dev score.

    Best of those that were scored on the same dev rows as the newest: other rows' scores compare with nothing.

    :raises InputError: where none fits, or the one that does is of another task.
    """
    store, ref = _where(store, ref, "finetune")
    if ref in ("latest", "best"):
        if (model := task_model(store, task, best=ref == "best")) is None:
            expected = f"expected a fine-tuned one; `gptmill finetune {task}` makes it"
            raise InputError(f"--model {ref}: found no model for {task} in {store.url}, {expected}")
        return model
    artifact = store.resolve(ref, "finetune")
    if (other := _task(store.manifest(artifact))) != task:
        raise InputError(f"--model {artifact.short}: a model for {other}, expected one for {task}")
    return artifact


def task_model(store: Store, task: str, best: bool, among: Collection[str] | None = None) -> Artifact | None:
    """The newest of a task's models, or the best of those scored on the same dev rows as it; None where there is none.

    :param among: digests, of which alone it may be; None: any.
    """
    of_task = [
        record
        for record in store.records("finetune")
        if _task(record.manifest) == task and (among is None or record.artifact.digest in among)
    ]
    whole = filter(store.whole, of_task)
    chosen = _best(store, Lineage(store, of_task), of_task) if best else next(whole, None)
    return chosen.artifact if chosen else None


def fine_tuned_tasks(store: Store) -> set[str]:
    """The tasks that the store has a fine-tuned model for."""
    tasks: set[str] = set()
    for record in store.records("finetune"):
        if (task := _task(record.manifest)) not in tasks and store.whole(record):
            tasks.add(task)
    return tasks


def best_models(store: Store, checkpoint: Artifact, synthetic: bool) -> dict[str, Artifact]:
    """Task -> of the models fine-tuned from a checkpoint's weights, the one of best dev score; of equals the newest.

    So one of several seeds, and no ablation unless it is the better model; from-scratch runs have no checkpoint. Those
    scored on other dev rows than the task's newest are left out.

    :param synthetic: whether those fine-tuned on generated rows are wanted, or those on real ones.
    """
    records = store.records("finetune")  # newest first
    lineage = Lineage(store, records)
    models: dict[str, list[Record]] = {}
    for record in records:
        if record.manifest["inputs"].get("checkpoint", {}).get("digest") != checkpoint.digest:
            continue
        if DatasetCounts.parse(_dataset(lineage, record)["counts"]).synthetic == synthetic:
            models.setdefault(_task(record.manifest), []).append(record)
    chosen = {task: _best(store, lineage, records) for task, records in models.items()}
    return {task: record.artifact for task, record in chosen.items() if record}


def _best(store: Store, lineage: Lineage, models: Sequence[Record]) -> Record | None:
    """The best of a task's models, newest first, on the dev rows of the newest complete one; None: none is complete."""
    if (newest := next(filter(store.whole, models), None)) is None:
        return None
    rows = _dev_rows(lineage, newest)
    comparable = [record for record in models if _dev_rows(lineage, record) == rows]
    comparable.sort(key=lambda each: FinetuneCounts.parse(each.manifest["counts"]).scores["dev/score"], reverse=True)
    return next(filter(store.whole, comparable), newest)


def _dev_rows(lineage: Lineage, record: Record) -> tuple[int, str]:
    rows = FinetuneCounts.parse(record.manifest["counts"]).rows
    return rows["dev"], str(_dataset(lineage, record)["inputs"]["files"]["digest"])


def _dataset(lineage: Lineage, record: Record) -> Manifest:
    return lineage.manifest(lineage.ancestor(record.artifact, "dataset"))


def _task(manifest: Manifest) -> str:
    return str(manifest["config"]["task"])
