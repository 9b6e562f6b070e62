"""The README.md of an exported folder: how the model is loaded, what it is, and where its answers are not ours."""

from __future__ import annotations

import re
from collections.abc import Mapping
from pathlib import Path
from string import Template
from typing import Any

from gptcore.base.files import read_object, write_bytes_atomic
from gptcore.base.tables import read_table
from gptcore.families import FAMILIES
from gptcore.nlu.forms import form_of
from gptcore.nlu.spec import TaskSpec
from gptcore.text.library import LibraryTokenizer
from gptcore.text.tokenizer import Tokenizer

_TABLES = read_table(__file__, "readme.toml")


def write_readme(
    network: Any,
    spec: TaskSpec | None,
    settings: Mapping[str, Any],
    tokenizer: Tokenizer,
    folder: Path,
    origin: Mapping[str, str],
) -> None:
    """Write the file beside all others.

    :param network: what is below the head of a task.
    :param spec: the task that the model was fine-tuned on; None: it is none that was.
    :param settings: what a fine-tuned model's own ``config.json`` says.
    :param origin: what the hub's card says of where the weights are from: "license", "base_model".
    """
    said = read_object(folder / "config.json", "an exported model's settings")
    config, family = network.config, FAMILIES[network.config.family]
    name = re.sub("LMHeadModel$", "ForCausalLM", said["architectures"][0])
    auto, own = name.partition("For")[2], "auto_map" in said
    count = sum(parameter.numel() for parameter in network.parameters())
    called = getattr(config, "architecture", family.title)
    what = f"{called}: {config.shape_in_words}, {count:,} parameters, {config.n_vocab:,} pieces ({tokenizer.kind})."
    values = {"trust": ", trust_remote_code=True" if own else "", "auto": auto and f"For{auto}", "row": '"A text."'}
    obeyed = isinstance(tokenizer, LibraryTokenizer)  # transformers reads the same file
    notes = [tokenizer.kind] if tokenizer.kind in _TABLES["notes"] and not obeyed else []
    if spec is None:
        title, tag = called, _TABLES["tags"].get(auto, "feature-extraction")
        notes += ["special"]
    else:
        form = form_of(spec)
        title, tag = f"{called} for {spec.name}", form.pipeline
        what += f" It was fine-tuned on {spec.name}, whose rows are {' and '.join(form.names_of(spec))}."
        values |= {"labels": ", ".join(spec.told_labels or form.class_names(spec)), "n_ctx": str(config.n_ctx)}
        values["row"] = _TABLES["rows"][form.name if form.places else "pair" if spec.fields[1:] else "single"]
        values["cut"] = "True" if spec.context is None or not (spec.fields[1:] or form.choices) else '"only_first"'
        parts = _TABLES["notes"]["parts"] if settings.get("part_tokens") else ""
        values["rest"] = Template(parts).substitute(settings)
        kinds = {"labels": bool(spec.labels) and not spec.score_range, "several": form.several}
        kinds |= {"graded": bool(spec.score_range), form.name: form.name in ("choices", "span", "tags")}
        notes += [*(kind for kind, has in kinds.items() if has), *([] if form.places else ["cut"])]
    code = Template(_TABLES["code"].get(auto, _TABLES["code"]["other"])).substitute(values).strip()
    values["origin"] = "".join(f"{name}: {value}\n" for name, value in origin.items())
    values |= {"title": title, "tag": tag, "what": what, "code": code, "loads": _TABLES["own" if own else "theirs"]}
    values["notes"] = "\n\n".join(Template(_TABLES["notes"][note]).substitute(values) for note in notes)
    text = Template(_TABLES["text"]).substitute(values)
    write_bytes_atomic(folder / "README.md", text.strip().encode() + b"\n")
