"""What an artifact was made from, back to the first, and the models that a pre-training kept on its way."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any

from gptcore.base.errors import InputError
from gptcore.base.files import parse_json
from gptcore.config import PRESETS, nearest_preset, network_config
from gptcore.text.tokenizer import Tokenizer
from tasks.store.artifact import Artifact
from tasks.store.counts import ImportedCounts, WeightsCounts
from tasks.store.manifest import Manifest
from tasks.store.records import Record
from tasks.store.state import known_stores
from tasks.store.store import Store

_SNAPSHOTS = "snapshots"


class Lineage:
    """What artifacts were made from; for many of them at once, each manifest is read only once."""

    def __init__(self, store: Store, known: Iterable[Record] = ()) -> None:
        """The lineage in ``store``; the manifests of ``known`` records are not read again."""
        self._store = store
        self._manifests: dict[Artifact, Manifest] = {item.artifact: item.manifest for item in known}
        self._homes: dict[str, Store] = {}

    def manifest(self, artifact: Artifact) -> Manifest:
        """The manifest of an artifact; raises InputError where it is missing or incomplete."""
        if artifact not in self._manifests:
            self._manifests[artifact] = self._store.manifest(artifact)
        return self._manifests[artifact]

    def ancestor(self, artifact: Artifact, stage: str) -> Artifact:
        """The nearest artifact of ``stage`` that ``artifact`` was made from, as :func:`ancestor` finds it."""
        level = [artifact]
        seen: set[str] = set()
        while level:
            parents: dict[str, Artifact] = {}
            for child in level:
                for item in self._inputs(child):
                    if item.stage == stage:
                        self.manifest(item)
                        return item
                    parents.setdefault(item.digest, item)
            level = [item for digest, item in parents.items() if digest not in seen]
            seen |= parents.keys()
        raise InputError(f"{artifact.url}: found no {stage} that it was made from, expected it beside it")

    def _inputs(self, artifact: Artifact) -> list[Artifact]:
        """What an artifact was made from; nothing where it is gone itself."""
        try:
            inputs = self.manifest(artifact)["inputs"].values()
        except InputError:
            return []
        if (root := _root(artifact)) not in self._homes:
            self._homes[root] = home_of(artifact)
        home = self._homes[root]
        return [home.artifact(item["stage"], item["digest"]) for item in inputs if "stage" in item]


def ancestor(store: Store, artifact: Artifact, stage: str) -> Artifact:
    """The artifact of ``stage`` that ``artifact`` was made from, directly or through others; the nearest of several.

    :raises InputError: there is none, or the store no longer holds it.
    """
    return Lineage(store).ancestor(artifact, stage)


def home_of(artifact: Artifact) -> Store:
    """The store that an artifact's own address is in, which may be another than the one at hand."""
    return Store(_root(artifact))


def located(artifact: Artifact) -> Artifact:
    """An artifact where it lies now: at its recorded address, else in another of :func:`known_stores`, moved there."""
    recorded = _root(artifact)
    for root in sorted(known_stores(), key=lambda known: known != recorded):
        if here := Store(root).find(artifact.stage, artifact.digest):
            return here
    return artifact


def _root(artifact: Artifact) -> str:
    return artifact.url.removesuffix(f"/{artifact.stage}/{artifact.digest}")


def model_files(artifact: Artifact) -> tuple[Path, Path]:
    """Local folders of a model and of its tokenizer, their bytes checked against the manifests.

    :raises InputError: either is missing; :class:`tasks.store.manifest.CorruptArtifact` where its bytes are wrong.
    """
    home = home_of(artifact)
    return home.local(artifact, "model"), home.local(tokenizer_of(home, artifact))


def opened_model(artifact: Artifact) -> tuple[Path, Tokenizer]:
    """The local folder of a model, and its tokenizer, ready to encode; raises as :func:`model_files`."""
    folder, words = model_files(artifact)
    return folder, Tokenizer.load(str(words))


def tokenizer_of(store: Store, artifact: Artifact) -> Artifact:
    """The tokenizer behind shards, a checkpoint or a fine-tuned model."""
    return ancestor(store, artifact, "tokenizer")


def load_tokenizer(store: Store, artifact: Artifact) -> Tokenizer:
    """The tokenizer behind shards, a checkpoint or a fine-tuned model, ready to encode."""
    return Tokenizer.load(str(store.local(tokenizer_of(store, artifact))))


def teacher_of(store: Store, model: Artifact) -> Artifact | None:
    """The model that a pre-trained one learnt from; None where it learnt from text alone."""
    teacher = store.manifest(model)["inputs"].get("teacher")
    return store.artifact(teacher["stage"], teacher["digest"]) if teacher else None


def card_origin(store: Store, model: Artifact) -> dict[str, str]:
    """What the hub's card of a model says of the imported one that it is, or was fine-tuned from: its licence, and its
    name where it is of the hub; nothing of a model that was pre-trained here.
    """
    manifest = store.manifest(model)
    if model.stage != "imported":
        made = manifest["inputs"].get("checkpoint", {})
        if made.get("stage") != "imported":
            return {}
        manifest = store.manifest(ancestor(store, model, "imported"))
    counts = ImportedCounts.parse(manifest["counts"])
    name = counts.address.removeprefix("hf://").partition("@")[0] if counts.address.startswith("hf://") else ""
    return {field: said for field, said in (("license", counts.licence), ("base_model", name)) if said}


def made_before(manifest: Mapping[str, Any]) -> dict[str, str]:
    """The digests of a model's "start", whose weights its training went on from, and "teacher", of those it had."""
    return {role: item["digest"] for role in ("start", "teacher") if (item := manifest["inputs"].get(role))}


def inherited_preset(model: Artifact, called: str = "the checkpoint", tuned: bool = False) -> tuple[str, str]:
    """The name of the preset whose settings suit a language model, and why, in words.

    It is that of the model whose weights its pre-training went on from; else the one that is recorded with it; else its
    teacher's; else :func:`gptcore.config.presets.nearest_preset` finds it by what is recorded.

    :param called: what the words call the model.
    :param tuned: whether it is for fine-tuning the model itself, which has a preset of its own where it is imported.
    """
    if tuned and model.stage == "imported":
        return "imported", f"as {called} was pre-trained elsewhere"
    home = home_of(model)
    manifest = home.manifest(model)
    inputs = ((role, manifest["inputs"].get(role)) for role in ("start", "teacher"))
    before = {role: home.find(item["stage"], item["digest"]) for role, item in inputs if item}
    if start := before.get("start"):
        return inherited_preset(start, f"its ancestor {start.short}")
    if (name := WeightsCounts.parse(manifest["counts"]).preset) in PRESETS:
        return name, f"which pre-trained {called}"
    if teacher := before.get("teacher"):
        return inherited_preset(teacher, f"its teacher {teacher.short}")
    network, pretrain = network_config(manifest["config"]["model"]), manifest["config"].get("pretrain")
    name = nearest_preset(network, pretrain)
    return name, f"nearest {'to what is recorded of' if pretrain else 'in size to'} {called}"


def own_tokenizer(store: Store, artifact: Artifact) -> Artifact:
    """A model's tokenizer, for what is made from the model here; of another store's model it is copied."""
    return store.adopt(tokenizer_of(store, artifact))


def snapshots(store: Store, checkpoint: Artifact) -> list[int]:
    """The updates whose models a pre-training run kept, ascending; its final model is not among them."""
    listed = (file["path"].split("/") for file in store.manifest(checkpoint)["files"])
    return sorted({int(path[1].removeprefix("step-")) for path in listed if path[0] == _SNAPSHOTS})


def model_folder(store: Store, checkpoint: Artifact, step: int | None) -> Path:
    """Where the model after ``step`` updates is; None: the final one. The others are not fetched.

    :raises InputError: the run kept no model of that update.
    """
    if step is None:
        return store.local(checkpoint, "model")
    if step not in (kept := snapshots(store, checkpoint)):
        raise InputError(f"{checkpoint.url}: found no model after {step} updates, expected one of {kept}")
    return store.local(checkpoint, _place(step))


def snapshot_scores(store: Store, checkpoint: Artifact, step: int) -> dict[str, Any]:
    """What was measured of the model after ``step`` updates, one of :func:`snapshots`: "validation/perplexity" ..."""
    return dict(parse_json(store.read(checkpoint, f"{_place(step)}/meta.json")))


def _place(step: int) -> str:
    return f"{_SNAPSHOTS}/step-{step:07d}"
