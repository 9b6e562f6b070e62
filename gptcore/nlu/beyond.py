"""Datasets beyond the paper's twelve, one declarative entry each: extracted answers, endings of scenes, named entities.

Their scores stand in columns of their own and never in the average that compares with GPT-1's paper.
"""

from __future__ import annotations

from collections.abc import Mapping

from gptcore.nlu.spec import Holdout, Source, TaskSpec

FEWREL_RELATIONS: Mapping[str, str] = {
    "P177": "crosses",
    "P364": "original language of film or TV show",
    "P2094": "competition class",
    "P361": "part of",
    "P641": "sport",
    "P59": "constellation",
    "P413": "position played on team / speciality",
    "P206": "located in or next to body of water",
    "P412": "voice type",
    "P155": "follows",
    "P26": "spouse",
    "P410": "military rank",
    "P25": "mother",
    "P463": "member of",
    "P40": "child",
    "P921": "main subject",
}
"""Wikidata's property -> what it is called there: the 16 of val_wiki.json."""

BEYOND_THE_PAPER = (
    TaskSpec(
        name="squad",  # Rajpurkar et al. 2016
        folder="SQuAD",
        format="squad",
        form="span",
        splits={"train": (Source("train-v1.1.json", 87_599),), "dev": (Source("dev-v1.1.json", 10_570),)},
        fields=("question", "context"),
        context=1,
        label="answers",
        labels=("answer",),
        metrics=("span_f1", "exact_match"),
        table=0,
        paper={"squad": None},
        cut=Holdout(dev=10_570, of=98_169, seed=0),
    ),
    TaskSpec(
        name="squad2",  # Rajpurkar et al. 2018
        folder="SQuAD",
        format="squad",
        form="span",
        splits={"train": (Source("train-v2.0.json", 130_319),), "dev": (Source("dev-v2.0.json", 11_873),)},
        fields=("question", "context"),
        context=1,
        label="answers",
        labels=("no answer", "answer"),
        metrics=("span_f1", "exact_match"),
        table=0,
        paper={"squad2": None},
        cut=Holdout(dev=4, of=16, seed=0),
    ),
    TaskSpec(
        name="swag",  # Zellers et al. 2018
        folder="SWAG",
        format="csv",
        form="choices",
        splits={"train": (Source("train.csv", 73_546),), "dev": (Source("val.csv", 20_006),)},
        fields=("startphrase",),
        choices=("ending0", "ending1", "ending2", "ending3"),
        label="label",
        labels=("0", "1", "2", "3"),
        metrics=("accuracy",),
        table=0,
        paper={"swag": None},
        cut=Holdout(dev=1, of=5, seed=0),
    ),
    TaskSpec(
        name="conll2003",  # Tjong Kim Sang and De Meulder 2003
        folder="CoNLL2003",
        format="conll",
        form="tags",
        splits={
            "train": (Source("eng.train", 14_041),),
            "dev": (Source("eng.testa", 3250),),
            "test": (Source("eng.testb", 3453),),
        },
        fields=("words",),
        label="tags",
        labels=("O", "B-LOC", "I-LOC", "B-MISC", "I-MISC", "B-ORG", "I-ORG", "B-PER", "I-PER"),
        metrics=("entity_f1",),
        table=0,
        paper={"conll2003": None},
    ),
    TaskSpec(
        name="commonsenseqa",  # Talmor et al. 2019, version 1.11; split as in KagNET's paper (Lin et al. 2019)
        folder="CommonsenseQA",
        format="commonsense",
        form="choices",
        splits={
            "train": (Source("train_rand_split.jsonl", 8500),),
            "dev": (Source("dev_rand_split.jsonl", 1221),),
            "test": (Source("inhouse_split_qids.txt", 1241),),
        },
        fields=("stem",),
        choices=("A", "B", "C", "D", "E"),
        label="answerKey",
        labels=("A", "B", "C", "D", "E"),
        metrics=("accuracy",),
        table=0,
        paper={"commonsenseqa": None},
        note="in-house split: the train questions that are not learnt from are the test set",
    ),
    TaskSpec(
        name="fewrel",  # Han et al. 2018, as a task of classification: the relations of its validation file
        folder="FewRel",
        format="fewrel",
        form="single",
        splits={"train": (Source("val_wiki.json", 9600),), "dev": (Source("val_wiki.json", 1600),)},
        fields=("tokens",),
        label="relation",
        labels=tuple(FEWREL_RELATIONS.values()),
        metrics=("accuracy",),
        table=0,
        paper={"fewrel": None},
        holdout=Holdout(dev=1600, of=11_200, seed=0),
        note="rows of val_wiki.json, 16 relations: a seventh of them are dev rows, as train_wiki.json has others",
    ),
    TaskSpec(
        name="openentity",  # Choi et al. 2018, by its nine general types alone (Zhang et al. 2019, section 4.3)
        folder="OpenEntity",
        format="open-entity",
        form="labels",
        splits={
            "train": (Source("crowd/train.json", 1998),),
            "dev": (Source("crowd/dev.json", 1998),),
            "test": (Source("crowd/test.json", 1998),),
        },
        fields=("mention_span",),
        label="y_str",
        labels=("entity", "event", "group", "location", "object", "organization", "person", "place", "time"),
        metrics=("micro_f1", "accuracy"),
        table=0,
        paper={"openentity": None},
        note="the nine general types of its labels; they take ten epochs (ERNIE, original code), where three find few",
    ),
)
