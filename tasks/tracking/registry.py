"""MLflow's model registry: every finished model is a version there, and `models:/NAME@ALIAS` finds it in a store.

The weights stay in the store; a version carries their address and digest, and beside its run lie the manifest and what
MLflow loads the model by (:mod:`tasks.tracking.pyfunc`). Its source is their address, which names no
place (:mod:`tasks.tracking.database`); or, where another's server keeps the files of runs elsewhere,
`runs:/<run>/model`, the form that it accepts from a client whose store it cannot see.

Also which artifacts MLflow refers to (:func:`referred`): every digest that a row, its fine-tunes, an analysis or an
alias mentions anywhere. Tags and settings are not read one by one but searched for digests, so that a reference that
somebody adds tomorrow counts.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from gptcore.base.errors import InputError
from gptcore.base.files import write_json_atomic
from tasks.store.artifact import Artifact
from tasks.store.garbage import Referred
from tasks.store.lineage import located
from tasks.store.locks import exclusive
from tasks.store.state import state_folder
from tasks.tracking.pyfunc import Interface, write_mlmodel
from tasks.tracking.retry import retried
from tasks.tracking.tracker import Run, Tracker, pages, scratch_folder
from tasks.tracking.views import ABSTRACTS, LEADERBOARD, PRETRAIN, SWEEPS

if TYPE_CHECKING:
    from mlflow.entities import Run as MlflowRun
    from mlflow.entities.model_registry import ModelVersion, RegisteredModel

SCHEME = "models:/"
CHAMPION = "champion"
LATEST = "latest"
NEWEST = "newest"
"""Tag of a registered model: its latest version; up to version 0.1.0 an alias. MLflow's list of models shows the alias
of the highest version and hides the others, so the champion's is the only one."""
NUMBER = "{version}"
"""What stands in an entry's description for the number that MLflow gives the version."""
_VERSION_TAG = "model_version"  # of a run: the version that it made
_LOADABLE_TAG = "mlflow_model"  # of a run: MLflow can load that version, which up to version 0.1.0 it could not
_MLMODEL = "model/MLmodel"
_REFERENCE = re.compile(r"models:/(?P<name>[\w.-]+)(?:@(?P<alias>[\w-]+)|/(?P<version>\d+|latest))")
_DIGEST = re.compile(r"(?<![0-9a-f])[0-9a-f]{64}(?![0-9a-f])")
_OURS = "gptmill/"  # experiments


@dataclass(frozen=True)
class Entry:
    """A finished model, as the registry shows it."""

    name: str
    """The registered model's name: one a task, one for the pre-trained, each apart for generated data."""
    about: str
    """What all versions of the name have in common."""
    artifact: Artifact
    merit: float
    """Higher is better, among entries of one ``yardstick``."""
    yardstick: str
    """What the merit was measured on: rows, or tokens of held-out text."""
    result: str
    """The merit in words, e.g. "dev score 62.4"."""
    leads: bool
    """Whether the version may be champion and latest."""
    tags: Mapping[str, str]
    description: str
    """Markdown, on the version's page; :data:`NUMBER` in it becomes the version's number."""
    manifest: Mapping[str, Any]
    interface: Interface


def is_registered(run: Run) -> bool:
    """Whether the run's model has its version, which MLflow can load; costs nothing, as the run says so itself."""
    return {_VERSION_TAG, _LOADABLE_TAG} <= run.opened_tags.keys()


def register(run: Run, entry: Entry) -> None:
    """Make the model of a run a version, once for each artifact, and move the alias `champion` and the tag `newest`.

    `newest` is the version whose artifact was made last. `champion` is the best of those measured on the same yardstick
    as that newest one: a score on other rows, or a perplexity of other tokens, compares with nothing, so new data
    starts a new reign. Of equals the newer one leads.
    """
    retried(lambda: _register(run, entry), run.tracker.shown)


def _register(run: Run, entry: Entry) -> None:
    tracker = run.tracker
    with exclusive(state_folder() / ".mlflow-registry.lock", "registration of a model"):
        model = _model(tracker, entry.name) or _created(tracker, entry)
        versions = _versions(tracker, entry.name)
        there = [version for version in versions if version.tags.get("digest") == entry.artifact.digest]
        holder = (there[0].run_id if there else None) or run.run_id
        if not any(file.path == _MLMODEL for file in tracker.client.list_artifacts(holder, "model")):
            with scratch_folder() as folder:
                write_mlmodel(folder, entry.artifact, entry.interface)
                write_json_atomic(folder / "manifest.json", dict(entry.manifest))
                tracker.client.log_artifacts(holder, str(folder), "model")
        if not there:
            made = _created_version(run, entry, 1 + max((int(version.version) for version in versions), default=0))
            there = [made]
            versions.append(made)
        _move_aliases(tracker, model, versions)
        while len(later := _versions(tracker, entry.name)) > len(versions):  # another host's, who saw fewer, too
            versions = later
            _move_aliases(tracker, _model(tracker, entry.name) or model, versions)
    run.set_tags({_VERSION_TAG: f"{entry.name}/{there[0].version}", _LOADABLE_TAG: "yes"})


def _created(tracker: Tracker, entry: Entry) -> RegisteredModel:
    """The registered model, made now, by this host or by another that was a moment earlier."""
    from mlflow.exceptions import MlflowException

    try:
        return tracker.client.create_registered_model(entry.name, description=entry.about)
    except MlflowException:
        if (model := _model(tracker, entry.name)) is None:
            raise
        return model


def _created_version(run: Run, entry: Entry, number: int) -> ModelVersion:
    """The version, made now; ``number``: what it will be, unless another host is a moment earlier."""
    client, said = run.tracker.client, entry.description
    source, tags = _source(run), _tags(entry)
    made = client.create_model_version(
        entry.name, source, run.run_id, tags, description=said.replace(NUMBER, str(number))
    )
    if int(made.version) != number:
        client.update_model_version(entry.name, made.version, said.replace(NUMBER, str(made.version)))
    return made


def _source(run: Run) -> str:
    root = str(run.tracker.client.get_run(run.run_id).info.artifact_uri)
    return f"{root}/model" if root.startswith("mlflow-artifacts:") else f"runs:/{run.run_id}/model"


def registered_artifact(tracker: Tracker, ref: str) -> Artifact:
    """The artifact behind `models:/NAME@ALIAS`, `models:/NAME/VERSION` or `models:/NAME/latest`.

    :raises InputError: no such model, alias or version; the line names those that are there.
    """
    parts = _REFERENCE.fullmatch(ref)
    if parts is None:
        raise InputError(f"{ref}: expected models:/NAME@ALIAS or models:/NAME/VERSION")
    name = parts["name"]
    model = _model(tracker, name)
    if model is None:
        names = ", ".join(sorted(each.name for each in tracker.client.search_registered_models())) or "none at all"
        raise InputError(f"{ref}: found no registered model {name!r} at {tracker.shown}, which has {names}")
    versions = _versions(tracker, name)
    aliases: dict[str, str] = {alias: str(number) for alias, number in model.aliases.items()}
    aliases |= {NEWEST: model.tags[NEWEST]} if NEWEST in model.tags else {}
    alias = NEWEST if LATEST in (parts["alias"], parts["version"]) else parts["alias"]
    number = parts["version"] if alias is None else aliases.get(alias, "")
    fitting = [version for version in versions if str(version.version) == number]
    if not fitting:
        words = ", ".join([*sorted(aliases), LATEST]) if aliases else "no alias"
        numbers = ", ".join(sorted((str(version.version) for version in versions), key=int)) or "none"
        raise InputError(f"{ref}: found no such version; {name} has the aliases {words}, the versions {numbers}")
    tags = fitting[0].tags
    if missing := [key for key in ("stage", "digest", "artifact") if key not in tags]:
        raise InputError(f"{ref}: found a version without the tag {missing[0]!r}, expected one that gptmill registered")
    return located(Artifact(tags["stage"], tags["digest"], tags["artifact"]))


def model_of_run(tracker: Tracker, run_id: str) -> str:
    """What stands for the model that a run's page is about: its address, or the digest of the leaderboard's row.

    :raises InputError: no such run, or one that is about no model.
    """
    from mlflow.exceptions import MlflowException

    try:
        tags = tracker.client.get_run(run_id).data.tags
    except MlflowException:
        raise InputError(f"run {run_id}: found none at {tracker.shown}, expected the page of a model's run") from None
    model = tags.get("model") or tags.get("checkpoint") or tags.get("suite")
    if not model:
        raise InputError(f"run {run_id}: found {tags.get('mlflow.runName')}, expected the page of a model's run")
    return model


def _tags(entry: Entry) -> dict[str, str]:
    tags = {
        "result": entry.result,
        **entry.tags,
        "stage": entry.artifact.stage,
        "digest": entry.artifact.digest,
        "artifact": entry.artifact.url,
        "created": entry.manifest["created"],
        "merit": repr(entry.merit),
        "yardstick": entry.yardstick,
        "leads": str(entry.leads),
    }
    return {key: value for key, value in tags.items() if value}  # the first ones are seen first


def _move_aliases(tracker: Tracker, model: RegisteredModel, versions: Sequence[ModelVersion]) -> None:
    ranked = [version for version in versions if version.tags.get("leads") == "True"]
    if not ranked:
        return
    newest = max(ranked, key=_age)
    peers = [version for version in ranked if version.tags["yardstick"] == newest.tags["yardstick"]]
    champion = max(peers, key=lambda version: (float(version.tags["merit"]), *_age(version)))
    if str(model.aliases.get(CHAMPION)) != str(champion.version):
        tracker.client.set_registered_model_alias(model.name, CHAMPION, str(champion.version))
        # for the list of models, which shows no version's tags
        tracker.client.set_registered_model_tag(model.name, CHAMPION, champion.tags["result"])
    if model.tags.get(NEWEST) != str(newest.version):
        tracker.client.set_registered_model_tag(model.name, NEWEST, str(newest.version))
    if NEWEST in model.aliases:
        tracker.client.delete_registered_model_alias(model.name, NEWEST)


def refresh(tracker: Tracker) -> None:
    """Bring the aliases of models that an older version registered up to date."""
    for model in pages(tracker.client.search_registered_models):
        if NEWEST in model.aliases:
            _move_aliases(tracker, model, _versions(tracker, model.name))


def _age(version: ModelVersion) -> tuple[str, int]:
    return version.tags["created"], int(version.version)


def _model(tracker: Tracker, name: str) -> RegisteredModel | None:
    models = tracker.client.search_registered_models(f"name = '{name}'")
    return models[0] if models else None


def _versions(tracker: Tracker, name: str) -> list[ModelVersion]:
    return list(pages(tracker.client.search_model_versions, filter_string=f"name = '{name}'"))


def referred(tracker: Tracker) -> Referred:
    """What the tracker says of artifacts.

    A language model's training run alone keeps nothing once it has ended, nor does a trial: a row, an analysis, an
    alias or a sweep does, which names its winner. Deleted runs keep nothing either, but they have been heard of.
    """
    tracker.reconcile()  # what a killed process left RUNNING would keep its artifacts for ever
    named: dict[str, str] = {}
    heard: set[str] = set()
    for experiment in pages(tracker.client.search_experiments, view_type=_all()):
        if not experiment.name.startswith(_OURS):
            continue
        runs = list(pages(tracker.client.search_runs, experiment_ids=[experiment.experiment_id], run_view_type=_all()))
        deleted = experiment.lifecycle_stage != "active"
        living = {run.info.run_id for run in runs if run.info.lifecycle_stage == "active" and not deleted}
        for run in runs:
            digests = set(_DIGEST.findall("\n".join([*run.data.tags.values(), *run.data.params.values()])))
            heard |= digests
            if run.info.run_id in living and (reason := _reason(run, experiment.name, living)):
                named |= dict.fromkeys(digests - named.keys(), reason)
    aliases, versions = _registry(tracker)
    named |= dict.fromkeys(aliases - named.keys(), "aliases")
    return Referred(named, heard | versions)


def _reason(run: MlflowRun, experiment: str, living: set[str]) -> str:
    """What a run that is there keeps artifacts as; nothing where it keeps none."""
    if run.info.status == "RUNNING":
        return "runs under way"
    if experiment in (PRETRAIN, ABSTRACTS):
        return ""
    parent = run.data.tags.get("mlflow.parentRunId")
    if experiment == SWEEPS:
        return "sweeps" if parent is None else ""
    if experiment != LEADERBOARD:
        return "analyses"
    return "rows" if parent is None or parent in living else ""


def _registry(tracker: Tracker) -> tuple[set[str], set[str]]:
    marked, every = set(), set()
    for model in pages(tracker.client.search_registered_models):
        numbers = {str(number) for number in (*model.aliases.values(), model.tags.get(NEWEST))}
        for version in _versions(tracker, model.name):
            digest = version.tags.get("digest", "")
            every.add(digest)
            if str(version.version) in numbers:
                marked.add(digest)
    return marked, every


def _all() -> int:
    from mlflow.entities import ViewType

    return int(ViewType.ALL)
