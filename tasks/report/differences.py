"""In what two suites differ, as MLflow has it: a suite's identity, flat, is the params of its run."""

from __future__ import annotations

import dataclasses
import re
from collections import Counter, defaultdict
from collections.abc import Iterator, Mapping, Sequence
from itertools import product
from typing import Any

from gptcore.config import FinetuneConfig

Params = Mapping[str, str]
_DEFAULT = "default"
_MOST = 3  # differences in a row's few words, tasks behind one
_SETTINGS = tuple(field.name for field in dataclasses.fields(FinetuneConfig))
_WORDS = {"epochs": "{} epochs", "batch_size": "batch {}", "from_task": "from {}", "max_train_rows": "{} rows"}
_WORDS |= {"n_transfer": "{} blocks", "lm_coef": "lambda {}"}
_OFF = {"max_train_rows": "all rows", "n_transfer": "all blocks", "select": "select dev"}


def differences(theirs: Params, mine: Params, task: str) -> Iterator[str]:
    """What of a suite's params decides the task's number and is not as in ``mine``: "lr 0.0005", "random weights"."""
    prefix = f"settings.{task}."
    if theirs.get("checkpoint") != mine.get("checkpoint"):
        yield f"checkpoint {theirs['checkpoint'][:12]}" if "checkpoint" in theirs else "random weights"
    elif "checkpoint" not in theirs:  # both from random weights: the shapes may differ
        yield from _changed(theirs, mine, "model.")
    if theirs.get("tokenizer") != mine.get("tokenizer"):
        yield f"tokenizer {theirs.get('tokenizer', '-')[:12]}"
    yield from _changed(theirs, mine, prefix)
    yield from (f"code of {words}" for words in _changed(theirs, mine, "code."))


def _changed(theirs: Params, mine: Params, prefix: str) -> Iterator[str]:
    for name in sorted({*theirs, *mine}):
        if name.startswith(prefix) and theirs.get(name) != mine.get(name):
            yield f"{name.removeprefix(prefix)} {theirs.get(name, _DEFAULT)}"


def chosen_on_of(identity: Mapping[str, Any]) -> str:
    """What epochs are chosen on in a row: FinetuneConfig.select of its tasks; empty where it has none.

    :param identity: flat, as MLflow keeps it; older versions chose on dev rows, and did not say so.
    """
    return " or ".join(sorted({str(identity.get(f"settings.{task}.select", "dev")) for task in _tasks(identity)}))


def told_apart(suites: Sequence[tuple[str, Params]]) -> list[str]:
    """For each suite in what its settings differ from most of the same label and model: "lr 1e-4, 3 epochs".

    What differs in some of the tasks has their names behind it.

    :param suites: label and params of each, the newest first; of two values that are as frequent the older one counts.
    """
    alike: dict[tuple[object, ...], list[int]] = defaultdict(list)
    for place, (label, params) in enumerate(suites):
        model = sorted(item for item in params.items() if item[0] == "checkpoint" or item[0].startswith("model."))
        alike[label, *model].append(place)
    words_of = [""] * len(suites)
    for places in alike.values():
        values: dict[str, Counter[str | None]] = defaultdict(Counter)
        for params in (suites[place][1] for place in reversed(places)):
            for task, name in product(_tasks(params), _SETTINGS):
                values[f"{task}.{name}"][params.get(f"settings.{task}.{name}")] += 1
        usual = {name: counted.most_common(1)[0][0] for name, counted in values.items()}
        for place in places:
            words = list(_in_words(suites[place][1], usual))
            words_of[place] = ", ".join(words[:_MOST] + ["..."] * (len(words) > _MOST))
    return words_of


def side_by_side(suites: Sequence[Params]) -> list[tuple[str, list[str]]]:
    """What suites differ in, each thing with its value in every one of them; of a setting that tasks do not share each
    value has their names behind it."""
    lines = [("starts from", [p["checkpoint"][:12] if "checkpoint" in p else "random weights" for p in suites])]
    lines.append(("tokenizer", [params.get("tokenizer", "")[:12] for params in suites]))
    parts = {name for params in suites for name in params if name.startswith(("model.", "code."))}
    lines += [(name, [params.get(name, "") for params in suites]) for name in sorted(parts)]
    lines += [(setting, [_value(params, setting) for params in suites]) for setting in _SETTINGS]
    return [(name, values) for name, values in lines if len({*values} - {""}) > 1]


def _value(params: Params, setting: str) -> str:
    by_value: dict[str, list[str]] = defaultdict(list)
    tasks = _tasks(params)
    for task in tasks:
        by_value[params.get(f"settings.{task}.{setting}", _OFF.get(setting, _DEFAULT))].append(task)
    return ", ".join(
        value if of == tasks else f"{value} ({', '.join(of) if len(of) < _MOST else f'{len(of)} tasks'})"
        for value, of in by_value.items()
    )


def _tasks(params: Mapping[str, Any]) -> list[str]:
    return sorted({name.split(".")[1] for name in params if name.startswith("settings.")})


def _in_words(params: Params, usual: Mapping[str, str | None]) -> Iterator[str]:
    """The settings of a suite's tasks that are not the usual ones."""
    tasks = _tasks(params)
    for setting in _SETTINGS:
        by_value: dict[str | None, list[str]] = defaultdict(list)
        for task in tasks:
            if (value := params.get(f"settings.{task}.{setting}")) != usual[f"{task}.{setting}"]:
                by_value[value].append(task)
        for value, of in by_value.items():
            text = _OFF.get(setting, f"no {setting}")
            if value is not None:
                text = _WORDS.get(setting, f"{setting} {{}}").format(re.sub(r"e-0+", "e-", value))
            few = ", ".join(of) if len(of) < _MOST else f"{len(of)} tasks"
            yield text.removesuffix("s" if value == "1" else "") + ("" if of == tasks else f" ({few})")
