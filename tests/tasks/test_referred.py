"""What MLflow refers to: rows and their fine-tunes, analyses, runs under way, aliases; and what it has heard of."""

from __future__ import annotations

from itertools import count

from tasks.store.artifact import Artifact
from tasks.tracking.pyfunc import Interface
from tasks.tracking.registry import Entry, referred, register
from tasks.tracking.tracker import Run, Tracker
from tasks.tracking.views import ABSTRACTS, LEADERBOARD, PRETRAIN

_digests = (f"{number:064x}" for number in count(0xFEED << 200))


def test_rows_their_fine_tunes_and_analyses_keep_what_they_mention(shared_tracker: Tracker) -> None:
    names = ("checkpoint", "tuned", "data", "lost", "analysed", "pretrained", "adapted", "under way", "elsewhere")
    digest = {name: next(_digests) for name in names}

    def done(experiment: str, name: str, settings: dict, tags: dict, parent: Run | None = None) -> Run:
        parent_id = parent.run_id if parent else None
        with shared_tracker.open(experiment, name, f"{digest[name]}/x", tags, settings, parent=parent_id) as run:
            return run

    kept = done(LEADERBOARD, "checkpoint", {"models": {"one": digest["checkpoint"]}}, {"kind": "ours"})
    done(LEADERBOARD, "tuned", {}, {"model": f"s3://x/finetune/{digest['tuned']}", "d": digest["data"]}, kept)
    gone = done(LEADERBOARD, "lost", {}, {})
    done(LEADERBOARD, "lost", {}, {"of": digest["lost"]}, gone)
    shared_tracker.client.delete_run(gone.run_id)
    done("gptmill/analysis", "analysed", {}, {})
    done(PRETRAIN, "pretrained", {}, {})
    done(ABSTRACTS, "adapted", {}, {})
    done("somebody else's", "elsewhere", {}, {})
    with shared_tracker.open(PRETRAIN, "under way", digest["under way"], {}, {}):
        found = referred(shared_tracker)
    said = {name: found.named.get(value) for name, value in digest.items()}
    assert said == {
        **dict.fromkeys(("checkpoint", "tuned", "data"), "rows"),
        **{"analysed": "analyses", "under way": "runs under way"},
        **dict.fromkeys(("lost", "pretrained", "adapted", "elsewhere")),
    }
    assert [name for name, value in digest.items() if value not in found.heard] == ["elsewhere"]


def test_versions_with_an_alias_are_kept_and_the_others_known(shared_tracker: Tracker) -> None:
    digests = [next(_digests) for _ in range(3)]
    with shared_tracker.open("models", "a model", digests[0], {}, {}) as run:
        for number, digest in enumerate(digests):  # the last one is the newest, the first one the best
            artifact = Artifact("pretrain", digest, f"/store/pretrain/{digest}")
            created, merit = f"2026-01-0{number + 1}T00:00:00", float(-number)
            register(
                run,
                Entry(
                    "referred",
                    "",
                    artifact,
                    created,
                    merit,
                    "rows",
                    f"{merit}",
                    True,
                    {},
                    "",
                    {},
                    Interface(("a",), {"label": "string"}, {"a": "b"}),
                ),
            )
    found = referred(shared_tracker)
    assert [found.named.get(digest) for digest in digests] == ["aliases", None, "aliases"]
    assert set(digests) <= set(found.heard)
