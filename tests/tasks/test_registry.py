"""Which models are versions of MLflow's registry, which of them leads, and what `models:/...` finds."""

from __future__ import annotations

import contextlib
import dataclasses
import itertools
from pathlib import Path
from types import SimpleNamespace
from typing import Any, cast

import pytest

from flows.forms.references import in_store
from gptcore.base.errors import InputError
from gptcore.base.settings import recorded
from gptcore.config import LSTMConfig, ModelConfig
from tasks.report.entries import corpus_data, finetuned_entry, pretrained_entry, task_data
from tasks.store.artifact import Artifact, Recipe
from tasks.store.store import Store
from tasks.tracking import registry
from tasks.tracking.pyfunc import Interface
from tasks.tracking.registry import Entry, is_registered, register, registered_artifact
from tasks.tracking.tracker import Run, Tracker
from tests.expected import expected

_numbers = itertools.count()


def entry(name: str, merit: float, day: int, rows: str = "rows", leads: bool = True) -> Entry:
    digest = f"{next(_numbers):064x}"
    artifact = Artifact("finetune", digest, f"/store/finetune/{digest}")
    manifest = {"x": 1, "created": f"2026-01-{day:02d}T00:00:00+00:00"}
    more: Any = ({"task": "rte"}, "words", manifest, Interface(("text",), {"label": "string"}, {"text": "a"}))
    return Entry(name, "about", artifact, merit, rows, f"{merit}", leads, *more)


def opened(tracker: Tracker, made: Entry, row: str = "") -> Run:
    return tracker.open("registry", "a model", made.artifact.digest + row, {}, {})


def record(tracker: Tracker, *entries: Entry) -> None:
    for made in entries:
        with opened(tracker, made) as run:
            register(run, made)


def leaders(tracker: Tracker, name: str) -> dict[str, str]:
    """Alias -> digest."""
    aliases = ("champion", "newest", "latest")
    return {alias: registered_artifact(tracker, f"models:/{name}@{alias}").digest for alias in aliases}


def test_an_artifact_is_one_version_however_often_it_is_met(shared_tracker: Tracker) -> None:
    made = entry("once", 0.5, 1)
    record(shared_tracker, made, made)
    assert is_registered(opened(shared_tracker, made))
    with opened(shared_tracker, made, "another row of the leaderboard") as run:
        assert not is_registered(run)
        register(run, made)
    (version,) = shared_tracker.client.search_model_versions("name = 'once'")
    assert version.tags["artifact"] == made.artifact.url
    assert version.tags["digest"] == made.artifact.digest
    assert version.description == "words"
    kept = shared_tracker.client.download_artifacts(version.run_id, "model/manifest.json")
    assert '"x": 1' in Path(kept).read_text()
    assert version.source == f"mlflow-artifacts:/{version.run_id}/artifacts/model"


def test_a_version_of_before_becomes_loadable_when_it_is_met_again(shared_tracker: Tracker) -> None:
    """Up to version 0.1.0 a version had a manifest beside its run, and no MLmodel."""
    made = entry("old", 0.5, 1)
    with opened(shared_tracker, made) as run, pytest.MonkeyPatch.context() as patch:
        patch.setattr(registry, "write_mlmodel", lambda *_: None)
        patch.setattr(registry, "_LOADABLE_TAG", "words_of_before")
        register(run, made)
    with opened(shared_tracker, made, "the same model on another row") as again:
        assert not is_registered(again)
        register(again, made)
    assert not is_registered(opened(shared_tracker, made)), "so that a second command looks once more"
    (version,) = shared_tracker.client.search_model_versions("name = 'old'")
    files = {file.path for file in shared_tracker.client.list_artifacts(version.run_id, "model")}
    assert {"model/MLmodel", "model/manifest.json"} <= files
    record(shared_tracker, made)
    assert is_registered(opened(shared_tracker, made))
    assert len(shared_tracker.client.search_model_versions("name = 'old'")) == 1


def test_the_best_is_champion_and_the_last_made_is_latest(shared_tracker: Tracker) -> None:
    worse, best, newer = entry("lead", 0.5, 1), entry("lead", 0.9, 2), entry("lead", 0.7, 3)
    record(shared_tracker, newer, worse, best)  # in whatever order a re-run comes upon them
    last = newer.artifact.digest
    assert leaders(shared_tracker, "lead") == {"champion": best.artifact.digest, "newest": last, "latest": last}
    model = shared_tracker.client.get_registered_model("lead")
    assert model.tags == {"champion": "0.9", "newest": "1"}
    assert list(model.aliases) == ["champion"], "of two the list of models would hide the older version's"
    shared_tracker.client.set_registered_model_alias("lead", "newest", "2")  # as version 0.1.0 did
    registry.refresh(shared_tracker)
    assert list(shared_tracker.client.get_registered_model("lead").aliases) == ["champion"]


def test_of_equals_the_newer_leads(shared_tracker: Tracker) -> None:
    first, second = entry("equal", 0.5, 1), entry("equal", 0.5, 2)
    record(shared_tracker, second, first)
    assert leaders(shared_tracker, "equal")["champion"] == second.artifact.digest


def test_no_score_on_other_rows_is_ever_champion(shared_tracker: Tracker) -> None:
    easy, hard = entry("reign", 0.99, 1, rows="easy rows"), entry("reign", 0.4, 2, rows="hard rows")
    record(shared_tracker, easy, hard)
    assert leaders(shared_tracker, "reign")["champion"] == hard.artifact.digest


def test_what_may_not_lead_is_a_version_all_the_same(shared_tracker: Tracker) -> None:
    model, lstm = entry("kinds", 0.5, 1), entry("kinds", 0.9, 2, leads=False)
    record(shared_tracker, lstm)
    with pytest.raises(InputError, match="no alias, the versions 1"):
        registered_artifact(shared_tracker, "models:/kinds@latest")
    record(shared_tracker, model)
    assert set(leaders(shared_tracker, "kinds").values()) == {model.artifact.digest}
    assert registered_artifact(shared_tracker, "models:/kinds/1") == lstm.artifact


def test_a_reference_that_finds_nothing_names_what_is_there(shared_tracker: Tracker) -> None:
    record(shared_tracker, entry("there", 0.5, 1))
    wrong = expected(__file__, "test_a_reference_that_finds_nothing_names_what_is_there")
    for ref, words in wrong.items():
        with pytest.raises(InputError) as refused:
            registered_artifact(shared_tracker, ref)
        assert words in str(refused.value)
        assert "\n" not in str(refused.value)
    shared_tracker.client.create_registered_model("foreign")
    shared_tracker.client.create_model_version("foreign", "s3://b/m")
    with pytest.raises(InputError, match="without the tag 'stage'"):
        registered_artifact(shared_tracker, "models:/foreign/1")


class Shelf:
    """A store with what a chain leaves there, as far as manifests go."""

    def __init__(self, root: Path, synthetic: bool = False) -> None:
        self.store, self.synthetic = Store(root), synthetic
        read = {"documents": {"train": 9, "validation": 1}, "words": 100, "synthetic": synthetic}
        self.corpus = self.put("corpus", {}, {"sources": "f" * 64}, read)
        splits = {"train": {"n_tokens": 90}, "validation": {"n_tokens": 10}}
        self.shards = self.put("shards", {}, {"corpus": self.corpus}, {"splits": splits})
        rows = {"train": {"rows": 6}, "dev": {"rows": 4}}
        counts = {"task": "rte", "synthetic": synthetic, "tokenizer_digest": "t", "splits": rows}
        self.dataset = self.put("dataset", {"task": "rte"}, {"files": "e" * 64}, counts)

    def put(self, stage: str, config: dict[str, Any], inputs: dict[str, Any], counts: dict[str, Any]) -> Artifact:
        return self.store.build(Recipe(stage, 1, config, inputs), lambda _: counts).artifact

    def pretrain(self, perplexity: float, network: Any) -> Entry:
        counts = {"validation/perplexity": perplexity, "validation/tokens": 10, "tokens_seen": 90}
        settings = {"model": recorded(network), "of": perplexity}
        counts = {**counts, "tokenizer_digest": "t"}
        return pretrained_entry(
            self.store, self.put("pretrain", settings, {"shards": self.shards}, counts), self.shards
        )

    def finetune(self, score: float, dev_rows: int = 4, start: Artifact | None = None, **config: Any) -> Entry:
        settings = {"task": "rte", "finetune": {"seed": 0, "of": score, **config}}
        counts = {"dev/score": score, "rows": {"train": 6, "dev": dev_rows}}
        inputs = {"dataset": self.dataset, **({"start": start} if start else {})}
        artifact = self.put("finetune", settings, inputs, counts)
        return finetuned_entry(self.store, artifact, self.dataset, "suite digest")


def test_generated_data_has_models_of_its_own_and_an_lstm_never_leads(tmp_path: Path) -> None:
    real, generated = Shelf(tmp_path / "real"), Shelf(tmp_path / "generated", synthetic=True)
    names = [shelf.finetune(0.5).name for shelf in (real, generated)]
    names += [shelf.pretrain(9.0, ModelConfig()).name for shelf in (real, generated)]
    assert names == ["gptmill-rte", "gptmill-rte-synthetic", "gptmill-pretrained", "gptmill-pretrained-synthetic"]
    transformer, better = (real.pretrain(perplexity, ModelConfig()) for perplexity in (9.0, 8.0))
    lstm = real.pretrain(7.0, LSTMConfig())
    assert better.merit > transformer.merit
    assert [made.leads for made in (transformer, better, lstm)] == [True, True, False]
    first = real.finetune(0.5)
    assert (first.tags["dev_score"], first.tags.get("start_digest")) == ("50.0", None)
    assert real.finetune(0.5, start=first.artifact).tags["start_digest"] == first.artifact.digest
    drawn = {"max_tokens": 40, "temperature": 1.0, "top_k": 0, "top_p": 1.0, "seed": 0}
    assert better.interface is not None
    assert better.interface.params == drawn
    assert real.finetune(0.5).tags["suite"] == "suite digest"


def test_a_versions_page_says_score_data_and_how_this_very_version_is_called(
    shared_tracker: Tracker, tmp_path: Path
) -> None:
    shelf = Shelf(tmp_path, synthetic=True)
    for score in (0.5, 0.25):  # the second is no champion, and its page must not lead to another model
        made = dataclasses.replace(shelf.finetune(score), name="pages")
        record(shared_tracker, made)
        (version,) = (
            found
            for found in shared_tracker.client.search_model_versions("name = 'pages'")
            if found.tags["digest"] == made.artifact.digest
        )
        said = version.description
        assert f"Dev score {100 * score:.1f} (accuracy x 100, 4 rows)" in said
        assert "on 6 rows of rte, synthetic data (no real text), seed 0" in said
        assert f"gptmill predict rte FILE.csv --model {made.artifact.short} --store {shelf.store.url}" in said
        assert f'load_model("models:/gptmill-rte-synthetic/{version.version}").predict(table)' in said
        assert (
            "Columns of the table: `sentence1`, `sentence2`. Comes back: `label` (`not_entailment` or `entailment`)"
            in said
        )
    about = shared_tracker.client.get_registered_model("pages").description
    assert 'load_model("models:/gptmill-rte-synthetic@champion").predict(table)' in about
    pretrained = shelf.pretrain(9.0, ModelConfig())
    record(shared_tracker, pretrained)
    (version,) = shared_tracker.client.search_model_versions(f"name = '{pretrained.name}'")
    for words in expected(__file__, "test_a_versions_page_says_score_data_and_how_this_very_version_is_called"):
        assert words in version.description
    assert f'load_model("models:/{pretrained.name}/1").predict(table)' in version.description


def test_a_page_has_its_versions_number_though_another_host_was_earlier(
    shared_tracker: Tracker, monkeypatch: pytest.MonkeyPatch
) -> None:
    first, second = (
        dataclasses.replace(entry("numbered", 0.5, day), description=f"number {registry.NUMBER}") for day in (1, 2)
    )
    record(shared_tracker, first)
    monkeypatch.setattr(registry, "_versions", lambda *_: [])  # as one sees who asked before the other was there
    record(shared_tracker, second)
    said = {
        found.version: found.description for found in shared_tracker.client.search_model_versions("name = 'numbered'")
    }
    assert {str(number): words for number, words in said.items()} == {"1": "number 1", "2": "number 2"}


def test_scores_compare_on_the_same_rows_alone(tmp_path: Path) -> None:
    shelf = Shelf(tmp_path)
    whole, again, part = shelf.finetune(0.5), shelf.finetune(0.6), shelf.finetune(0.7, dev_rows=2)
    assert whole.yardstick == again.yardstick != part.yardstick
    drawn = [shelf.finetune(0.5, dev_rows=2, max_eval_rows=2, seed=seed).yardstick for seed in (0, 1)]
    assert drawn[0] == drawn[1] == part.yardstick, "every seed is scored on the same draw"


def test_what_runs_say_of_their_data(tmp_path: Path) -> None:
    shelf = Shelf(tmp_path, synthetic=True)
    rows = task_data(shelf.store, shelf.dataset)
    assert (rows.name, rows.digest, rows.url) == ("rte (synthetic)", "e" * 64, shelf.dataset.url)
    assert rows.rows == {"train": 6, "dev": 4}
    books, shards = corpus_data(shelf.store, shelf.shards)
    assert (books.digest, shards.digest) == (shelf.corpus.digest, shelf.shards.digest)
    assert shards.more == {"train tokens": 90, "validation tokens": 10}


def test_a_reference_becomes_the_stores_own_word(
    shared_tracker: Tracker, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("flows.forms.references.Tracker", lambda: shared_tracker)
    shelf = Shelf(tmp_path / "store")
    made = dataclasses.replace(shelf.finetune(0.5), name="moved")
    record(shared_tracker, made)
    ref = "models:/moved@champion"
    assert in_store(shelf.store, ref, ("finetune",)) == made.artifact.digest
    assert in_store(Store(tmp_path / "another"), ref, ("finetune",)) == made.artifact.url
    assert in_store(shelf.store, "latest", ("finetune",)) == "latest"
    with pytest.raises(InputError, match="found a fine-tuned model, expected a pre-trained model"):
        in_store(shelf.store, ref, ("pretrain",))


def test_a_finished_look_costs_no_call(shared_tracker: Tracker, monkeypatch: pytest.MonkeyPatch) -> None:
    made = entry("cheap", 0.5, 1)
    record(shared_tracker, made)
    run = opened(shared_tracker, made)
    monkeypatch.setattr(registry, "_versions", lambda *_: pytest.fail("asked the registry"))
    assert is_registered(run)


def test_another_hosts_version_of_the_same_moment_is_not_left_behind(
    shared_tracker: Tracker, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The lock is this machine's: while one host looks, another registers a better model and names it."""
    worse, better = entry("raced", 0.5, 1), entry("raced", 0.9, 2)
    move, begun = registry._move_aliases, []

    def moved(*given: Any) -> None:
        if not begun:
            begun.append(True)
            with monkeypatch.context() as other_host:
                other_host.setattr(registry, "exclusive", lambda *_: contextlib.nullcontext())
                record(shared_tracker, better)
        move(*given)

    monkeypatch.setattr(registry, "_move_aliases", moved)
    record(shared_tracker, worse)
    assert set(leaders(shared_tracker, "raced").values()) == {better.artifact.digest}


@pytest.mark.parametrize(
    ("files_of_the_run", "source"), expected(__file__, "test_a_versions_files_are_where_its_server_finds_them")
)
def test_a_versions_files_are_where_its_server_finds_them(files_of_the_run: str, source: str) -> None:
    """Files of ``mlflow-artifacts:`` a server hands out itself."""
    about = SimpleNamespace(info=SimpleNamespace(artifact_uri=files_of_the_run))
    client = SimpleNamespace(get_run=lambda _: about)
    assert registry._source(cast(Any, SimpleNamespace(run_id="r1", tracker=SimpleNamespace(client=client)))) == source
