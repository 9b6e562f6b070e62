"""Where the datasets come from: address, licence, and what an archive holds of a dataset; one entry each.

Beside the registry and not in it, as reading a dataset needs none of this and a dataset of one's own has no address.
SHA-256 and sizes are those that two libraries recorded of the same addresses: huggingface/datasets
(``datasets/*/dataset_infos.json``) and tensorflow/datasets (``url_checksums/glue.txt``, ``.../race.txt``). A file
without one is trusted when it is first fetched, and held to that later.
"""

from __future__ import annotations

import difflib
from collections.abc import Mapping
from dataclasses import dataclass, field

from gptcore.base.errors import InputError
from gptcore.nlu.blimp import BLIMP, FOLDER, PAIRS, PARADIGMS

_GLUE = "https://dl.fbaipublicfiles.com/glue/data/"
_SENTEVAL = "https://dl.fbaipublicfiles.com/senteval/senteval_data/"
_BLIMP = "https://raw.githubusercontent.com/alexwarstadt/blimp/master/data/"
_SQUAD = "https://rajpurkar.github.io/SQuAD-explorer/dataset/"
_SWAG = "https://raw.githubusercontent.com/rowanz/swagaf/master/data/"
_DPRD = "http://www.hlt.utdallas.edu/~vince/data/emnlp12/"


@dataclass(frozen=True)
class Download:
    """One file to fetch."""

    url: str
    take: str
    """Of an archive: the members to keep, as a pattern; its first part is left off. Else the name to keep it under."""
    size: int = 0
    """Bytes; 0: not known."""
    sha256: str = ""
    """Empty: not known from a source that can be cited."""

    @property
    def name(self) -> str:
        """The file's own name."""
        return self.url.rpartition("/")[2]


@dataclass(frozen=True)
class Origin:
    """Where one dataset comes from."""

    name: str
    """As the commands call it: a task's, or one of a set that some other command uses."""
    folder: str
    """The sub-folder of the folder of datasets that it becomes."""
    licence: str
    """In the authors' words, shortened."""
    page: str
    """Of the authors, where the terms stand."""
    downloads: tuple[Download, ...] = ()
    request: str = ""
    """How to get it where nobody may fetch it."""
    note: str = ""
    """What to know of the fetched files."""
    rows: Mapping[str, int] = field(default_factory=dict)
    """Rows published, of a set that neither the registry nor the table of submissions counts."""

    @property
    def size(self) -> int:
        """Bytes to fetch; 0: not known."""
        sizes = [download.size for download in self.downloads]
        return sum(sizes) if all(sizes) else 0


ORIGINS: dict[str, Origin] = {
    origin.name: origin
    for origin in (
        Origin(
            "mnli",
            "MNLI",
            "OANC's (free); fiction: CC BY 3.0, CC BY-SA 3.0 and others",
            "https://cims.nyu.edu/~sbowman/multinli/",
            (
                Download(
                    _GLUE + "MNLI.zip",
                    "MNLI/*.tsv",
                    312_783_507,
                    "e7c1d896d26ed6caf700110645df426cc2d8ebf02a5ab743d5a5c68ac1c83633",
                ),
            ),
        ),
        Origin(
            "snli",
            "SNLI",
            "CC BY-SA 4.0",
            "https://nlp.stanford.edu/projects/snli/",
            (
                Download(
                    "https://nlp.stanford.edu/projects/snli/snli_1.0.zip",
                    "snli_1.0/snli_1.0_*.jsonl",
                    94_550_081,
                    "afb3d70a5af5d8de0d9d81e2637e0fb8c22d1235c2749d83125ca43dab0dbd3e",
                ),
            ),
        ),
        Origin(
            "scitail",
            "SciTail",
            "none stated on the page (libraries that list it: Apache 2.0)",
            "https://allenai.org/data/scitail",
            (
                Download(
                    "http://data.allenai.org.s3.amazonaws.com/downloads/SciTailV1.1.zip",
                    "SciTailV1.1/tsv_format/*.tsv",
                    14_174_621,
                    "3fccd37350a94ca280b75998568df85fc2fc62843a3198d644fcbf858e6943d5",
                ),
            ),
        ),
        Origin(
            "qnli",
            "QNLI",
            "CC BY-SA 4.0 (made from SQuAD)",
            "https://rajpurkar.github.io/SQuAD-explorer/",
            (
                Download(
                    _GLUE + "QNLIv2.zip",
                    "QNLI/*.tsv",
                    10_627_589,
                    "e634e78627a29adaecd4f955359b22bf5e70f2cbd93b493f2d624138a0c0e5f5",
                ),
            ),
        ),
        Origin(
            "rte",
            "RTE",
            "none stated",
            "https://aclweb.org/aclwiki/Recognizing_Textual_Entailment",
            (
                Download(
                    _GLUE + "RTE.zip",
                    "RTE/*.tsv",
                    697_150,
                    "6bf86de103ecd335f3441bd43574d23fef87ecc695977a63b82d5efb206556ee",
                ),
            ),
        ),
        Origin(
            "storycloze",
            "StoryCloze",
            "research, on request",
            "https://cs.rochester.edu/nlp/rocstories/",
            request="fill in the authors' form (http://goo.gl/forms/aQz39sdDrO), take the spring 2016 validation and "
            "test files from the link they send, and put both, under their own names, into StoryCloze/",
        ),
        Origin(
            "race",
            "RACE",
            "non-commercial research only",
            "http://www.cs.cmu.edu/~glai1/data/race/",
            (
                Download(
                    "http://www.cs.cmu.edu/~glai1/data/race/RACE.tar.gz",
                    "RACE/*/*/*.txt",
                    25_443_609,
                    "b2769cc9fdc5c546a693300eb9a966cec6870bd349fbc44ed5225f8ad33006e5",
                ),
            ),
        ),
        Origin(
            "cola",
            "CoLA",
            "of the books quoted; research use held fair",
            "https://nyu-mll.github.io/CoLA/",
            (
                Download(
                    _GLUE + "CoLA.zip",
                    "CoLA/*.tsv",
                    376_971,
                    "f212fcd832b8f7b435fb991f101abf89f96b933ab400603bf198960dfc32cbff",
                ),
            ),
        ),
        Origin(
            "sst2",
            "SST-2",
            "none stated",
            "https://nlp.stanford.edu/sentiment/",
            (
                Download(
                    _GLUE + "SST-2.zip",
                    "SST-2/*.tsv",
                    7_439_277,
                    "d67e16fb55739c1b32cdce9877596db1c127dc322d93c082281f64057c16deaa",
                ),
            ),
        ),
        Origin(
            "mrpc",
            "MRPC",
            "Microsoft's, for research",
            "https://www.microsoft.com/en-us/download/details.aspx?id=52398",
            (
                Download(
                    _SENTEVAL + "msr_paraphrase_train.txt",
                    "msr_paraphrase_train.txt",
                    1_047_044,
                    "60a9b09084528f0673eedee2b69cb941920f0b8cd0eeccefc464a98768457f89",
                ),
                Download(
                    _SENTEVAL + "msr_paraphrase_test.txt",
                    "msr_paraphrase_test.txt",
                    441_275,
                    "a04e271090879aaba6423d65b94950c089298587d9c084bf9cd7439bd785f784",
                ),
                Download(
                    _GLUE + "mrpc_dev_ids.tsv",
                    "dev_ids.tsv",
                    6222,
                    "971d7767d81b997fd9060ade0ec23c4fc31cbb226a55d1bd4a1bac474eb81dc7",
                ),
            ),
            note="the official .msi is for Windows; this is SentEval's tokenised copy, cut by GLUE's list of dev rows "
            "(what GLUE itself serves)",
        ),
        Origin(
            "stsb",
            "STS-B",
            "by source; see the LICENSE.txt that comes with it",
            "http://ixa2.si.ehu.eus/stswiki/index.php/STSbenchmark",
            (
                Download(
                    _GLUE + "STS-B.zip",
                    "STS-B/*.tsv",
                    802_872,
                    "e60a6393de5a8b5b9bac5020a1554b54e3691f9d600b775bd131e613ac179c85",
                ),
            ),
        ),
        Origin(
            "qqp",
            "QQP",
            "Quora's terms of service, non-commercial",
            "https://quoradata.quora.com/First-Quora-Dataset-Release-Question-Pairs",
            (
                Download(
                    _GLUE + "QQP-clean.zip",
                    "QQP/*.tsv",
                    41_696_084,
                    "40e7c862c04eb26ee04b67fd900e76c45c6ba8e6d8fab4f8f1f8072a1a3fbae0",
                ),
            ),
        ),
        Origin(
            "wnli",
            "WNLI",
            "CC BY 4.0 (made from the Winograd schemas)",
            "https://cs.nyu.edu/~davise/papers/WinogradSchemas/WS.html",
            (
                Download(
                    _GLUE + "WNLI.zip",
                    "WNLI/*.tsv",
                    28_999,
                    "ae0e8e4d16f4d46d4a0a566ec7ecceccfd3fbfaa4a7a4b4e02848c0f2561ac46",
                ),
            ),
        ),
        Origin(
            "diagnostic",
            "diagnostic",
            "none stated",
            "https://gluebenchmark.com/diagnostics",
            (
                Download(
                    _GLUE + "AX.tsv",
                    "diagnostic.tsv",
                    222_257,
                    "0e13510b1bb14436ff7e2ee82338f0efb0133ecf2e73507a697dc210db3f05fd",
                ),
            ),
        ),
        Origin(
            "dprd",
            "DPRD",
            "none stated",
            "http://www.hlt.utdallas.edu/~vince/data/emnlp12/",
            (  # copies of the train file that differ by a byte are about: none can be called the right one
                Download(_DPRD + "train.c.txt", "train.c.txt"),
                Download(
                    _DPRD + "test.c.txt",
                    "test.c.txt",
                    67_044,
                    "cf1cf025e1d59a5b363e6dcfbd5a13aae8a9830831ac16fd7f865aca7a1559d8",
                ),
            ),
            rows={"train": 1322, "test": 564},
        ),
        Origin(
            "squad",
            "SQuAD",
            "CC BY-SA 4.0",
            "https://rajpurkar.github.io/SQuAD-explorer/",
            (
                Download(
                    _SQUAD + "train-v1.1.json",
                    "train-v1.1.json",
                    30_288_272,
                    "3527663986b8295af4f7fcdff1ba1ff3f72d07d61a20f487cb238a6ef92fd955",
                ),
                Download(
                    _SQUAD + "dev-v1.1.json",
                    "dev-v1.1.json",
                    4_854_279,
                    "95aa6a52d5d6a735563366753ca50492a658031da74f301ac5238b03966972c9",
                ),
                Download(
                    _SQUAD + "train-v2.0.json",
                    "train-v2.0.json",
                    42_123_633,
                    "68dcfbb971bd3e96d5b46c7177b16c1a4e7d4bdef19fb204502738552dede002",
                ),
                Download(
                    _SQUAD + "dev-v2.0.json",
                    "dev-v2.0.json",
                    4_370_528,
                    "80a5225e94905956a6446d296ca1093975c4d3b3260f1d6c8f68bc2ab77182d8",
                ),
            ),
            note="both versions: of squad and of squad2",
        ),
        Origin(
            "swag",
            "SWAG",
            "MIT",
            "https://rowanzellers.com/swag/",
            (Download(_SWAG + "train.csv", "train.csv"), Download(_SWAG + "val.csv", "val.csv")),
        ),
        Origin(
            "conll2003",
            "CoNLL2003",
            "the text: Reuters' for research, on request",
            "https://www.clips.uantwerpen.be/conll2003/ner/",
            request="ask NIST for the Reuters corpus RCV1 (https://trec.nist.gov/data/reuters/reuters.html), make the "
            "files as the authors' page says, and put eng.train, eng.testa and eng.testb into CoNLL2003/",
        ),
        Origin(
            "commonsenseqa",
            "CommonsenseQA",
            "MIT",
            "https://www.tau-nlp.sites.tau.ac.il/commonsenseqa",
            request="put train_rand_split.jsonl and dev_rand_split.jsonl of version 1.11 into CommonsenseQA/, and "
            "beside them inhouse_split_qids.txt of KagNET's authors, whose other questions then are the test set",
        ),
        Origin(
            "fewrel",
            "FewRel",
            "MIT",
            "https://github.com/thunlp/FewRel",
            request="put val_wiki.json of the repository's data folder into FewRel/",
        ),
        Origin(
            "openentity",
            "OpenEntity",
            "none stated on the page",
            "https://www.cs.utexas.edu/~eunsol/html_pages/open_entity.html",
            request="put train.json, dev.json and test.json of the archive's release/crowd into OpenEntity/crowd/; its "
            "only address is http, and no digest of it can be cited",
        ),
        Origin(
            BLIMP,
            FOLDER,
            "none stated in the repository",
            "https://github.com/alexwarstadt/blimp",
            tuple(Download(f"{_BLIMP}{name}.jsonl", f"{name}.jsonl") for name in PARADIGMS),
            rows={"test": PAIRS * len(PARADIGMS)},
        ),
    )
}
"""Name -> entry: the twelve tasks in the registry's order, then what other commands read."""


def origins_named(names: list[str]) -> list[Origin]:
    """The entries of these names, in the table's order; ``all``: every one.

    :raises InputError: a name that is none.
    """
    for name in names:
        if name not in ORIGINS and name != "all":
            near = difflib.get_close_matches(name.lower(), ORIGINS, n=1, cutoff=0.5)
            hint = f" (did you mean {near[0]}?)" if near else ""
            raise InputError(f"dataset: found {name!r}, expected all or some of {', '.join(ORIGINS)}{hint}")
    return [origin for origin in ORIGINS.values() if origin.name in names or "all" in names]
