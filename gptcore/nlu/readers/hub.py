"""Where the Hugging Face hub keeps the same datasets, and how its parquet files spell them.

Columns have other names there and labels are numbers, counted in an order of the set's own. Both are as published with
the sets (their ClassLabel features), and stated here so that a file which says otherwise is an error. Sources: the
dataset cards of nyu-mll/glue, stanfordnlp/snli, allenai/scitail and ehovy/race. Story Cloze may not be passed on, so
nobody's parquet is public; its names are those of the loading script LSDSem/story_cloze.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field


@dataclass(frozen=True)
class HubSet:
    """One dataset in parquet."""

    repo: str
    """``owner/name`` on the hub."""
    files: Mapping[str, str]
    """The public file that holds a split, as in the registry -> ``config/split`` in the repository."""
    columns: Mapping[str, str] = field(default_factory=dict)
    """The registry's name of a column -> its name here, where that differs."""
    classes: tuple[str, ...] = ()
    """What the label's numbers 0, 1, ... mean, as published; a file's own features must agree."""
    labels: Mapping[int | str, str] = field(default_factory=dict)
    """Label here -> the registry's; empty: the same text or number."""
    options: str = ""
    """A column with the list of all choices, in the place of one column each."""


_NLI = ("entailment", "neutral", "contradiction")
_RTE = ("entailment", "not_entailment")
_PREMISE = {"sentence1": "premise", "sentence2": "hypothesis", "gold_label": "label"}
_SPLITS = {"train": "train", "dev": "validation", "test": "test"}


def _glue(
    config: str, classes: tuple[str, ...] = (), labels: tuple[str, ...] = (), columns: Mapping[str, str] | None = None
) -> HubSet:
    """A set of GLUE; ``labels``: the registry's, where it has other words than the hub."""
    files = {f"{ours}.tsv": f"{config}/{theirs}" for ours, theirs in _SPLITS.items()}
    return HubSet("nyu-mll/glue", files, columns or {}, classes, dict(enumerate(labels or classes)))


def _scitail(config: str, columns: Mapping[str, str], labels: Mapping[int | str, str]) -> HubSet:
    files = {f"scitail_1.0_{ours}.tsv": f"{config}/{theirs}" for ours, theirs in _SPLITS.items()}
    return HubSet("allenai/scitail", files, columns, labels=labels)


HUB: dict[str, tuple[HubSet, ...]] = {
    "MNLI": (
        HubSet(
            "nyu-mll/glue",
            {
                "train.tsv": "mnli/train",
                "dev_matched.tsv": "mnli/validation_matched",
                "dev_mismatched.tsv": "mnli/validation_mismatched",
                "test_matched.tsv": "mnli/test_matched",
                "test_mismatched.tsv": "mnli/test_mismatched",
            },
            _PREMISE,
            _NLI,
            dict(enumerate(_NLI)),
        ),
    ),
    "SNLI": (
        HubSet(
            "stanfordnlp/snli",
            {f"snli_1.0_{ours}.jsonl": f"plain_text/{theirs}" for ours, theirs in _SPLITS.items()},
            _PREMISE,
            _NLI,
            {**dict(enumerate(_NLI)), -1: "-"},
        ),
    ),
    "SciTail/tsv_format": (
        _scitail(
            "snli_format",
            {"premise": "sentence1", "hypothesis": "sentence2", "label": "gold_label"},
            {"entailment": "entails", "neutral": "neutral"},
        ),
        _scitail("tsv_format", {}, {}),  # second choice: read with quotes as syntax, it lost 499 train rows
    ),
    "RACE": (
        HubSet(
            "ehovy/race",
            {
                f"{ours}/{level}": f"{level}/{theirs}"
                for ours, theirs in _SPLITS.items()
                for level in ("middle", "high")
            },
            {"questions": "question", "answers": "answer"},
            options="options",
        ),
    ),
    "StoryCloze": (
        HubSet(
            "LSDSem/story_cloze",
            {
                "cloze_test_val__spring2016 - cloze_test_ALL_val.csv": "2016/validation",
                "cloze_test_test__spring2016 - cloze_test_ALL_test.csv": "2016/test",
            },
            {
                **{f"InputSentence{number}": f"input_sentence_{number}" for number in range(1, 5)},
                **{f"RandomFifthSentenceQuiz{number}": f"sentence_quiz{number}" for number in (1, 2)},
                "AnswerRightEnding": "answer_right_ending",
            },
        ),
    ),
    "CoLA": (_glue("cola", ("unacceptable", "acceptable"), ("0", "1"), {"acceptable": "label"}),),
    "SST-2": (_glue("sst2", ("negative", "positive"), ("0", "1")),),
    "MRPC": (
        _glue(
            "mrpc",
            ("not_equivalent", "equivalent"),
            ("0", "1"),
            {"#1 String": "sentence1", "#2 String": "sentence2", "Quality": "label"},
        ),
    ),
    "STS-B": (_glue("stsb", columns={"score": "label"}),),
    "QQP": (_glue("qqp", ("not_duplicate", "duplicate"), ("0", "1"), {"is_duplicate": "label"}),),
    "QNLI": (_glue("qnli", _RTE),),
    "RTE": (_glue("rte", _RTE),),
    "WNLI": (_glue("wnli", ("not_entailment", "entailment")),),
    "diagnostic": (HubSet("nyu-mll/glue", {"diagnostic.tsv": "ax/test"}, _PREMISE, _NLI, dict(enumerate(_NLI))),),
}
"""A dataset's folder -> its sets on the hub, the better one first."""
