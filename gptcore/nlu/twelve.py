"""The twelve datasets of Table 1, one declarative entry each.

Sizes are those of the public distributions, so that a report can say how much of a set was read. Label orders are
pinned: they differ between libraries, and a checkpoint's output layer means nothing without them.
"""

from __future__ import annotations

from gptcore.nlu.spec import Holdout, PromptTemplate, Source, TaskSpec

_NLI = ("entailment", "neutral", "contradiction")
_RTE = ("not_entailment", "entailment")

# After GPT-3's paper, appendix G, which has prompts for RTE, ANLI, RACE and Story Cloze; the others are made like them.
_THREE_WAYS = PromptTemplate("{0}\nQuestion: {1} True, False, or Neither?\nAnswer:", ("True", "Neither", "False"))
_TWO_WAYS = PromptTemplate("{0}\nQuestion: {1} True or False?\nAnswer:", ("False", "True"))
_ALIKE = PromptTemplate("{0}\n{1}\nQuestion: Do these two mean the same? Yes or No?\nAnswer:", ("No", "Yes"))

TWELVE = (
    TaskSpec(
        name="mnli",
        folder="MNLI",
        format="tsv",
        form="pair",
        splits={
            "train": (Source("train.tsv", 392_702),),
            "dev": (Source("dev_matched.tsv", 9815, "mnli_m"), Source("dev_mismatched.tsv", 9832, "mnli_mm")),
        },
        fields=("sentence1", "sentence2"),  # premise, hypothesis
        label="gold_label",
        labels=_NLI,
        prompt=_THREE_WAYS,
        metrics=("accuracy",),
        table=2,
        paper={"mnli_m": 82.1, "mnli_mm": 81.4},
    ),
    TaskSpec(
        name="snli",
        folder="SNLI",
        format="jsonl",
        form="pair",
        splits={
            "train": (Source("snli_1.0_train.jsonl", 549_367),),
            "dev": (Source("snli_1.0_dev.jsonl", 9842),),
            "test": (Source("snli_1.0_test.jsonl", 9824),),
        },
        fields=("sentence1", "sentence2"),  # premise, hypothesis
        label="gold_label",
        labels=_NLI,
        dropped_labels=("-",),  # the annotators did not agree
        prompt=_THREE_WAYS,
        metrics=("accuracy",),
        table=2,
        paper={"snli": 89.9},
    ),
    TaskSpec(
        name="scitail",
        folder="SciTail/tsv_format",
        format="tsv",
        form="pair",
        splits={
            "train": (Source("scitail_1.0_train.tsv", 23_596),),
            "dev": (Source("scitail_1.0_dev.tsv", 1304),),
            "test": (Source("scitail_1.0_test.tsv", 2126),),
        },
        columns=("premise", "hypothesis", "label"),
        fields=("premise", "hypothesis"),
        label="label",
        labels=("neutral", "entails"),
        prompt=_TWO_WAYS,
        metrics=("accuracy",),
        table=2,
        paper={"scitail": 88.3},
    ),
    TaskSpec(
        name="qnli",
        folder="QNLI",
        format="tsv",
        form="pair",
        splits={"train": (Source("train.tsv", 104_743),), "dev": (Source("dev.tsv", 5463),)},
        # The dataset's own order, as neither the paper nor the released code reorders a pair: the question stands
        # first. What is long is the Wikipedia sentence, so that one is cut and the question never is.
        fields=("question", "sentence"),
        context=1,
        label="label",
        labels=_RTE,
        prompt=PromptTemplate("{1}\nQuestion: {0} Is the answer in it? Yes or No?\nAnswer:", ("No", "Yes")),
        metrics=("accuracy",),
        table=2,
        paper={"qnli": 88.1},
        note="version 2 (2019) of the set; the published number is on version 1",
    ),
    TaskSpec(
        name="rte",
        folder="RTE",
        format="tsv",
        form="pair",
        splits={"train": (Source("train.tsv", 2490),), "dev": (Source("dev.tsv", 277),)},
        fields=("sentence1", "sentence2"),  # premise, hypothesis
        label="label",
        labels=_RTE,
        prompt=_TWO_WAYS,
        metrics=("accuracy",),
        seeds=5,
        table=2,
        paper={"rte": 56.0},
    ),
    TaskSpec(
        name="storycloze",
        folder="StoryCloze",
        format="csv",
        form="choices",
        splits={
            "train": (Source("cloze_test_val__spring2016 - cloze_test_ALL_val.csv", 1497),),
            "dev": (Source("cloze_test_val__spring2016 - cloze_test_ALL_val.csv", 374),),
            "test": (Source("cloze_test_test__spring2016 - cloze_test_ALL_test.csv", 1871),),
        },
        holdout=Holdout(dev=374, of=1871, seed=3535999445),  # original code
        fields=(("InputSentence1", "InputSentence2", "InputSentence3", "InputSentence4"),),
        choices=("RandomFifthSentenceQuiz1", "RandomFifthSentenceQuiz2"),
        label="AnswerRightEnding",
        labels=("1", "2"),
        prompt=PromptTemplate("{0}"),
        metrics=("accuracy",),
        seeds=5,
        table=3,
        paper={"storycloze": 86.5},
        note="train and dev are cut from the public validation stories (original code)",
    ),
    TaskSpec(
        name="race",
        folder="RACE",
        format="race",
        form="choices",
        splits={  # counted in questions
            "train": (Source("train/middle", 25_421, "race_m"), Source("train/high", 62_445, "race_h")),
            "dev": (Source("dev/middle", 1436, "race_m"), Source("dev/high", 3451, "race_h")),
            "test": (Source("test/middle", 1436, "race_m"), Source("test/high", 3498, "race_h")),
        },
        fields=("article", "questions"),
        choices=("option A", "option B", "option C", "option D"),
        label="answers",
        labels=("A", "B", "C", "D"),
        prompt=PromptTemplate("\nQuestion: {1}\nAnswer:", context="{0}"),
        metrics=("accuracy",),
        table=3,
        paper={"race_m": 62.9, "race_h": 57.4, "race": 59.0},
    ),
    TaskSpec(
        name="cola",
        folder="CoLA",
        format="tsv",
        form="single",
        splits={"train": (Source("train.tsv", 8551),), "dev": (Source("dev.tsv", 1043),)},
        columns=("source", "acceptable", "original_judgement", "sentence"),
        fields=("sentence",),
        label="acceptable",
        labels=("0", "1"),
        prompt=PromptTemplate("{0}\nQuestion: Is this good English? Yes or No?\nAnswer:", ("No", "Yes")),
        metrics=("matthews", "accuracy"),
        seeds=5,
        table=4,
        paper={"cola": 45.4},
    ),
    TaskSpec(
        name="sst2",
        folder="SST-2",
        format="tsv",
        form="single",
        splits={"train": (Source("train.tsv", 67_349),), "dev": (Source("dev.tsv", 872),)},
        fields=("sentence",),
        label="label",
        labels=("0", "1"),  # negative, positive
        prompt=PromptTemplate("Review: {0}\nSentiment:", ("negative", "positive")),
        metrics=("accuracy",),
        table=4,
        paper={"sst2": 91.3},
    ),
    TaskSpec(
        name="mrpc",
        folder="MRPC",
        format="tsv",
        form="pair",
        symmetric=True,
        splits={"train": (Source("train.tsv", 3668),), "dev": (Source("dev.tsv", 408),)},
        fields=("#1 String", "#2 String"),
        context=None,
        label="Quality",
        labels=("0", "1"),
        prompt=_ALIKE,
        metrics=("f1", "accuracy"),
        seeds=5,
        table=4,
        paper={"mrpc": 82.3},
    ),
    TaskSpec(
        name="stsb",
        folder="STS-B",
        format="tsv",
        form="pair",
        symmetric=True,
        splits={"train": (Source("train.tsv", 5749),), "dev": (Source("dev.tsv", 1500),)},
        fields=("sentence1", "sentence2"),
        context=None,
        label="score",
        score_range=(0.0, 5.0),  # six classes with soft labels, after Tai et al. 2015
        prompt=PromptTemplate("{0}\n{1}\nQuestion: How alike are they, from 0 to 5?\nAnswer:", tuple("012345")),
        metrics=("pearson", "spearman"),
        seeds=5,
        table=4,
        paper={"stsb": 82.0},
    ),
    TaskSpec(
        name="qqp",
        folder="QQP",
        format="tsv",
        form="pair",
        symmetric=True,
        splits={"train": (Source("train.tsv", 363_846),), "dev": (Source("dev.tsv", 40_430),)},
        fields=("question1", "question2"),
        context=None,
        label="is_duplicate",
        labels=("0", "1"),
        prompt=_ALIKE,
        metrics=("f1", "accuracy"),
        table=4,
        paper={"qqp": 70.3},
    ),
)
