"""BLiMP (Warstadt et al. 2020): minimal pairs of English sentences, of which one is well formed; zero-shot only.

67 paradigms, a file of JSON lines each, make up 12 fields (the paper's "phenomena"). A language model is right on a
pair where it finds the good sentence the likelier one: :mod:`gptcore.evaluation.blimp`.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

import fsspec

from gptcore.base.errors import InputError
from gptcore.base.files import sha256_json
from gptcore.base.filesystems import file_fingerprint
from gptcore.nlu.readers import Record, decoded_lines, has_folder, parse_object, show, unreadable

BLIMP = "blimp"
FOLDER = "BLiMP"
PAIRS = 1000
"""Minimal pairs that each paradigm has, as published."""
CHANCE = 0.5

FIELDS: dict[str, tuple[str, ...]] = {
    field: tuple(paradigms.split())
    for field, paradigms in {
        "anaphor_agreement": "anaphor_gender_agreement anaphor_number_agreement",
        "argument_structure": "animate_subject_passive animate_subject_trans causative drop_argument inchoative "
        "intransitive passive_1 passive_2 transitive",
        "binding": "principle_A_c_command principle_A_case_1 principle_A_case_2 principle_A_domain_1 "
        "principle_A_domain_2 principle_A_domain_3 principle_A_reconstruction",
        "control_raising": "existential_there_object_raising existential_there_subject_raising "
        "expletive_it_object_raising tough_vs_raising_1 tough_vs_raising_2",
        "determiner_noun_agreement": "determiner_noun_agreement_1 determiner_noun_agreement_2 "
        "determiner_noun_agreement_irregular_1 determiner_noun_agreement_irregular_2 "
        "determiner_noun_agreement_with_adj_2 determiner_noun_agreement_with_adj_irregular_1 "
        "determiner_noun_agreement_with_adj_irregular_2 determiner_noun_agreement_with_adjective_1",
        "ellipsis": "ellipsis_n_bar_1 ellipsis_n_bar_2",
        "filler_gap_dependency": "wh_questions_object_gap wh_questions_subject_gap "
        "wh_questions_subject_gap_long_distance wh_vs_that_no_gap wh_vs_that_no_gap_long_distance "
        "wh_vs_that_with_gap wh_vs_that_with_gap_long_distance",
        "irregular_forms": "irregular_past_participle_adjectives irregular_past_participle_verbs",
        "island_effects": "adjunct_island complex_NP_island coordinate_structure_constraint_complex_left_branch "
        "coordinate_structure_constraint_object_extraction left_branch_island_echo_question "
        "left_branch_island_simple_question sentential_subject_island wh_island",
        "npi_licensing": "matrix_question_npi_licensor_present npi_present_1 npi_present_2 "
        "only_npi_licensor_present only_npi_scope sentential_negation_npi_licensor_present "
        "sentential_negation_npi_scope",
        "quantifiers": "existential_there_quantifiers_1 existential_there_quantifiers_2 superlative_quantifiers_1 "
        "superlative_quantifiers_2",
        "subject_verb_agreement": "distractor_agreement_relational_noun distractor_agreement_relative_clause "
        "irregular_plural_subject_verb_agreement_1 irregular_plural_subject_verb_agreement_2 "
        "regular_plural_subject_verb_agreement_1 regular_plural_subject_verb_agreement_2",
    }.items()
}
"""The name of each field and the paradigms that make it up, which are the files' names.

These are the paper's 12 fields; the files have a 13th `linguistics_term`, see :data:`_MERGED`."""

PARADIGMS = tuple(paradigm for paradigms in FIELDS.values() for paradigm in paradigms)
"""The names of all 67 paradigms."""

_MERGED = {"s-selection": "argument_structure"}  # as the paper's 12 phenomena and BabyLM's 12 columns have it

COLUMNS = (BLIMP, *(f"{BLIMP}/{field}" for field in FIELDS))
"""The leaderboard's zero-shot columns: the mean of the 12 fields, then each of them."""


@dataclass(frozen=True)
class Pair:
    """A minimal pair: two sentences that differ in little, of which only the first is well formed."""

    good: str
    bad: str


def has_blimp(datasets_url: str) -> bool:
    """Whether the folder of datasets has BLiMP's."""
    return has_folder(FOLDER, datasets_url)


def read_paradigm(datasets_url: str, paradigm: str) -> Iterator[Pair]:
    """The pairs of ``BLiMP/<paradigm>.jsonl``, in the file's order.

    :raises InputError: naming file, line and field, if the file is missing, empty, or a row is broken or stands in
        another paradigm's file.
    """
    url = f"{datasets_url.rstrip('/')}/{FOLDER}/{paradigm}.jsonl"
    field = next(field for field, paradigms in FIELDS.items() if paradigm in paradigms)
    line = 0
    try:
        with fsspec.open(url, "rb") as file:
            for line, text in decoded_lines(file, url):
                row = Record(url, str(line), parse_object(text.rstrip("\r\n"), url, line))
                if (found := row.value("UID")) != paradigm:
                    raise row.error("UID", show(found), f"{paradigm!r}, as the file is called")
                if _MERGED.get(str(term := row.value("linguistics_term")), term) != field:
                    raise row.error("linguistics_term", show(term), repr(field))
                yield Pair(row.text("sentence_good"), row.text("sentence_bad"))
    except OSError as error:
        raise unreadable(url, error) from error
    if not line:
        raise InputError(f"{url}: found no line, expected a minimal pair in each")


def blimp_fingerprint(datasets_url: str) -> str:
    """SHA-256 of what the 67 files hold.

    :raises InputError: one is missing.
    """
    found = {}
    for name in (f"{FOLDER}/{paradigm}.jsonl" for paradigm in PARADIGMS):
        url = f"{datasets_url.rstrip('/')}/{name}"
        try:
            found[name] = file_fingerprint(url)
        except OSError as error:
            raise unreadable(url, error) from error
    return sha256_json(found)
