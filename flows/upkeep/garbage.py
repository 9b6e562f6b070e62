"""`gptmill gc`: what of a store nothing refers to any more; listed, and deleted where that is confirmed."""

from __future__ import annotations

import os
import sys
from collections import Counter
from collections.abc import Sequence
from datetime import UTC, datetime, timedelta

from rich.filesize import decimal

from gptcore.base.errors import InputError, require
from tasks.stages.table import STAGES
from tasks.store.garbage import Item, Plan, Rules, inventory, plan, sweep
from tasks.store.presence import noted
from tasks.store.store import Store
from tasks.tracking.registry import referred
from tasks.tracking.tracker import Tracker

_MEASURES = (
    *("ngrams", "baseline", "evaluation", "zero-shot", "blimp", "held-out", "prompted", "overlap", "speed", "written"),
    *("ngram-floor", "harness", "graph", "vectors", "mentions", "grounded", "kagnet"),
)
_TRACKED = ("pretrain", "finetune", "adapt", "vectors", "kagnet")
_WORLDS = "storyworld"
_KINDS = {"mirror": "mirrors", "copy": "copies", "arriving": "remains"}  # those of another name
_CONFIRMED = "delete"
_MOST_HOURS = 1_000_000  # more than a hundred years: older than any store, and still a date
_MOST_DAYS = 36_500


def gc(url: str, confirmed: bool, older_than: float, unreferenced: bool, history: int) -> None:
    """List what may go, and delete it where that is confirmed: beforehand, or by a word typed on a terminal.

    What is confirmed beforehand includes what is over in this home; see :func:`flows.upkeep.retention.forget`.

    :param older_than: hours; what is younger stays.
    :param unreferenced: also what the tracker has never heard of.
    :param history: days for which what is over stays.
    :raises InputError: other hours than 0 to a million; days below 1; no such store; no tracker; or one that has never
        heard of anything in the store.
    """
    require(0 <= older_than <= _MOST_HOURS, f"--older-than: found {older_than:g}, expected hours, 0 to {_MOST_HOURS:,}")
    require(1 <= history <= _MOST_DAYS, f"--history: found {history}, expected days, 1 to {_MOST_DAYS:,}")
    _collect(url, confirmed, older_than, unreferenced)
    if confirmed:
        from flows.upkeep.retention import forget

        print()
        for line in forget(history):
            print(line, flush=True)


def _collect(url: str, confirmed: bool, older_than: float, unreferenced: bool) -> None:
    store, tracker = Store(url), Tracker()
    rules = Rules(_MEASURES, _TRACKED, _WORLDS, timedelta(hours=older_than), unreferenced)
    items, planned = _plan(store, tracker, rules)
    print(f"store {store.url}, MLflow {tracker.shown}\n")
    print("\n".join(_table(planned)))
    for item, _ in planned.kept:
        if item.problem:
            print(f"\n{item.path}: kept, with all that it may have been made from: {item.problem}")
    if not planned.dropped:
        print("\nnothing to delete")
        return
    print("\nto delete:")
    for item in planned.dropped:
        print(_line(item))
    if not (confirmed or _typed(planned.dropped)):
        print("\nnothing was deleted; gptmill gc --yes deletes these")
        return
    items, now = _plan(store, tracker, rules)  # a typed word takes its time
    chosen = {item.path for item in planned.dropped}
    gone = list(sweep(store, [item for item in now.dropped if item.path in chosen], items))
    if any(item.stage == "pretrain" for item in gone) and os.environ.get("PREFECT_API_URL"):
        from flows.forms.choices import list_checkpoints

        list_checkpoints(store)
    print(f"\ndeleted: {_amount(gone)}")


def _plan(store: Store, tracker: Tracker, rules: Rules) -> tuple[list[Item], Plan]:
    """All that is there, and what of it may go.

    :raises InputError: the tracker has never heard of this store: its word would empty it.
    """
    items, known = inventory(store, STAGES), referred(tracker)
    artifacts = [item for item in items if item.kind == "artifact"]
    if artifacts and not rules.unknown and not any(item.digest in known.heard for item in artifacts):
        raise InputError(
            f"--store {store.url}: MLflow at {tracker.shown} has heard of none of its {len(artifacts)} artifacts; "
            "expected the one that recorded them (GPTMILL_HOME, MLFLOW_TRACKING_URI), or --all-unreferenced"
        )
    with noted(store.scratch) as leased:
        return items, plan(items, known, leased, rules, datetime.now(UTC))


def _table(planned: Plan) -> list[str]:
    """A line a stage, then one for each kind of thing that is no artifact, then all: what stays, why, what may go."""
    kept = [item for item, _ in planned.kept]
    names = dict.fromkeys(map(_group, sorted([*kept, *planned.dropped], key=lambda item: (item.kind, item.stage))))
    lines = [f"{'':<12} {'kept':>16} {'to delete':>16}  kept because of"]
    for name in names:
        why = Counter(reason for item, reason in planned.kept if _group(item) == name)
        reasons = ", ".join(f"{reason} {count}" for reason, count in why.most_common())
        stays = [item for item in kept if _group(item) == name]
        goes = [item for item in planned.dropped if _group(item) == name]
        lines.append(f"{name:<12} {_amount(stays):>16} {_amount(goes):>16}  {reasons}".rstrip())
    return [*lines, f"{'all':<12} {_amount(kept):>16} {_amount(planned.dropped):>16}"]


def _group(item: Item) -> str:
    return item.stage if item.kind == "artifact" else _KINDS.get(item.kind, item.kind)


def _line(item: Item) -> str:
    what = _group(item) if item.kind == "artifact" else f"{_group(item)} of {item.stage}"
    when = "" if item.changed is None else f"{item.changed:%Y-%m-%d %H:%M}"
    return f"  {what:<24} {item.digest[:12]} {decimal(item.size):>10}  {when}"


def _typed(dropped: Sequence[Item]) -> bool:
    """Whether somebody at a terminal types the word."""
    if not sys.stdin.isatty():
        return False
    print(f"\nType {_CONFIRMED} to delete {_amount(dropped)}: ", end="", flush=True)
    return sys.stdin.readline().strip() == _CONFIRMED


def _amount(items: Sequence[Item]) -> str:
    return f"{len(items):,}, {decimal(sum(item.size for item in items))}" if items else "-"
