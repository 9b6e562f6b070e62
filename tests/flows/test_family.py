"""A second family through the same chain: beside the first on the leaderboard, sharing what does not depend on it."""

from __future__ import annotations

from pathlib import Path

import pytest

from flows.forms.parameters import PretrainParameters
from flows.pretrain import pretrain
from gptcore.base.errors import InputError
from gptcore.text.tokenizer import Tokenizer
from tasks.report.leaderboard import Leaderboard
from tasks.report.suites import read_leaderboard
from tasks.store.references import checkpoint_label, pretrained_model
from tasks.store.store import Store
from tests.flows.world import OVERRIDES, run_pipeline

pytestmark = pytest.mark.usefixtures("prefect_server")


@pytest.fixture(scope="module")
def board(world: tuple[str, str], store: str, prefect_server: Path) -> Leaderboard:
    run_pipeline(world, store, family="gpt", tasks=["rte"])
    return run_pipeline(world, store, family="gpt2", tasks=["rte"])


def test_both_families_have_their_row_of_the_same_data(board: Leaderboard, shelf: Store) -> None:
    ours = {row.name.rpartition(" ")[0]: row for row in read_leaderboard().rows if row.kind == "ours"}
    assert {"pre-trained", "GPT-2 pre-trained"} <= set(ours)  # other tests leave rows there, too
    assert set(ours["GPT-2 pre-trained"].per_task) == {"rte"}
    assert [len(shelf.list(stage)) for stage in ("baseline", "corpus", "tokenizer", "pretrain", "finetune")] == [
        1,  # of the rows as they are, whatever reads them
        2,
        2,
        2,
        2,
    ]
    seen = {shelf.manifest(artifact)["counts"]["tokens_seen"] for artifact in shelf.list("pretrain")}
    assert len(seen) == 1


def test_what_was_trained_is_of_its_family_and_says_so(board: Leaderboard, shelf: Store) -> None:
    newest = pretrained_model(shelf, "latest")
    assert " GPT-2 " in checkpoint_label(shelf, newest)
    assert (shelf.local(newest) / "model" / "README.md").read_text(encoding="utf-8").count("# GPT-2, pre-trained") == 1
    tuned = {
        (shelf.local(a) / "model" / "README.md").read_text(encoding="utf-8").split("# ")[1].split(",")[0]
        for a in shelf.list("finetune")
    }
    assert tuned == {"GPT-1", "GPT-2"}
    kinds = {Tokenizer.load(str(shelf.local(artifact))).kind for artifact in shelf.list("tokenizer")}
    assert kinds == {"word", "byte-level"}


def test_a_tokenizer_of_the_other_family_is_refused(
    board: Leaderboard, world: tuple[str, str], store: str, shelf: Store
) -> None:
    by_kind = {Tokenizer.load(str(shelf.local(artifact))).kind: artifact for artifact in shelf.list("tokenizer")}
    with pytest.raises(InputError, match="a word one, expected a byte-level one"):
        run_pipeline(world, store, family="gpt2", tasks=["rte"], tokenizer=by_kind["word"].digest)
    with pytest.raises(InputError, match="a byte-level one, expected a word one"):
        run_pipeline(world, store, family="gpt", tasks=["rte"], tokenizer=str(shelf.local(by_kind["byte-level"])))
    shards = shelf.list("shards")[0].digest  # the newest: GPT-2's
    with pytest.raises(InputError, match="a byte-level one, expected a word one"):
        pretrain(PretrainParameters(preset="demo", store=store, shards=shards, overrides=OVERRIDES))


def test_a_pinned_byte_level_vocabulary_encodes_untouched_partitions(
    board: Leaderboard, world: tuple[str, str], store: str, shelf: Store
) -> None:
    """Books cleaned one by one give the same ids, so that the model is found in the store, not trained again."""
    before = {artifact.digest for artifact in shelf.list("finetune")}
    tokenizer = next(a for a in shelf.list("tokenizer") if Tokenizer.load(str(shelf.local(a))).kind == "byte-level")
    run_pipeline(world, store, family="gpt2", tasks=["rte"], tokenizer=tokenizer.digest)
    whole, composed = (shelf.manifest(artifact)["counts"]["splits"] for artifact in shelf.list("shards")[:2])
    assert whole == composed
    assert len(before) == 2
