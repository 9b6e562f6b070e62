"""Stage `imported`: a whole model that was trained elsewhere, with its own tokenizer, as a checkpoint of the store.

The artifact goes by its content, wherever the folder lies. Where it came from stands among its counts.
"""

from __future__ import annotations

import os
import re
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from prefect import task

from gptcore.base.errors import InputError, require
from gptcore.base.files import sha256_json
from gptcore.base.filesystems import exists, file_sha256, file_system
from gptcore.base.settings import recorded
from gptcore.text.tokenizer import Tokenizer
from tasks.stages.stage import STAGE_OPTIONS, build, recipe_of
from tasks.stages.tokenizer import pin_own_tokenizer
from tasks.store.artifact import Artifact
from tasks.store.counts import ImportedCounts, TokenizerCounts
from tasks.store.references import imported_from, imported_names
from tasks.store.store import Store
from tasks.tracking.logs import logger

_NAME = re.compile(r"(?!(?:latest|best)$|[0-9a-fA-F]{4,64}$)[\w][\w.-]*")
"""A name that no other way to name a checkpoint can be taken for."""
_CARD = "README.md"
_LICENCE = re.compile(r"^license:(?:[ \t]*\n[ \t]*-)?[ \t]+['\"]?([^'\"\n#]*[^'\"\n# ])", re.MULTILINE)
"""The licence in the head of a card, or the first of several."""


@task(name="imported", task_run_name="import {url}", **STAGE_OPTIONS)
def import_model(store: Store, url: str, name: str = "") -> Artifact:
    """The language model in a folder of Hugging Face's kind (any fsspec URL), taken as it is.

    :param name: what the forms and the leaderboard call it; empty: what the folder is called.
    :raises InputError: no such model, one of another kind, a tokenizer of another size; or the store has the model by
        another name.
    """
    require(not name or _NAME.fullmatch(name), f"--name {name}: expected letters, digits, '.', '_' and '-', and no REF")
    fs, path = file_system(url)
    revision = _revision(fs, path)
    # a commit of the hub stays what it is, and is fetched once
    artifact = (revision and imported_from(store, url, revision)) or _read_whole(store, url, name, revision)
    if name and (there := ImportedCounts.of(store, artifact).name) != name:
        raise InputError(f"--name {name}: found {artifact.short} imported as {there or 'a model without a name'}")
    return artifact


def _read_whole(store: Store, url: str, name: str, revision: str) -> Artifact:
    """The model, read from its folder; see :func:`import_model`."""
    # which bring torch, that few of those who look here need
    from gptcore.models.files.folder import ModelFolder, weight_files
    from gptcore.models.files.layout import check_kind, read_model

    called = name or _name_of(url)
    logger().info("reading %s", url)
    stored = read_model(url)
    config = stored.config
    check_kind(config, Tokenizer.load(url), f"{url}: tokenizer")
    tokenizer = pin_own_tokenizer(store, url)
    known = TokenizerCounts.of(store, tokenizer)
    if known.n_vocab != config.n_vocab:
        expected = f"expected its tokenizer's {known.n_vocab}, or a tokenizer.json, beside which it may be padded"
        raise InputError(f"{url}: found n_vocab = {config.n_vocab}, {expected}")
    fs, path = file_system(url)
    nested = sorted(each.removeprefix(f"{path}/") for each in fs.find(path) if each.endswith((".safetensors", ".bin")))
    left_out = [*stored.left_out, *(each for each in nested if "/" in each)]
    names = ["config.json", *weight_files(ModelFolder(url))]
    files = {each: {"sha256": file_sha256(fs, f"{path}/{each}")} for each in names}
    recipe = recipe_of("imported", {"model": recorded(config)}, {"tokenizer": tokenizer, "files": sha256_json(files)})
    if called in imported_names(store, but=recipe.digest):
        require(not name, f"--name {name}: found another model of this name in {store.url}; expected another name")
        called = f"{called}-{recipe.digest[:6]}"

    def produce(out: Path) -> dict[str, Any]:
        from gptcore.models.network import build_model

        model = build_model(config).fill(stored.tensors, url)
        model.save(out / "model")
        return {
            "parameters": model.num_parameters,
            "tokenizer_digest": known.tokenizer_digest,
            "name": called,
            "address": url,
            "revision": revision,
            "licence": _licence(fs, path),
            "left_out": left_out,
            "files": [f"{said['sha256']}  {each}" for each, said in files.items()],
        }

    return build(store, recipe, produce, "import", _made).artifact


def _name_of(url: str) -> str:
    """What a folder is called: the last part of its address, without a revision, as far as a name may have it."""
    path = url.partition("@")[0].rstrip("/") if "://" in url else os.path.abspath(url)
    last = path.rpartition("/")[2]
    name = re.sub(r"[^\w.-]+", "-", last).lstrip(".-")
    return name if _NAME.fullmatch(name) else f"model-{name}"


def _revision(fs: Any, path: str) -> str:
    """The commit of a repository of the hub; empty: the address has none."""
    if "hf" not in fs.protocol or not exists(fs, path):
        return ""
    from huggingface_hub import HfApi

    there = fs.resolve_path(path)
    return str(HfApi(endpoint=fs.endpoint).repo_info(there.repo_id, revision=there.revision).sha)


def _licence(fs: Any, path: str) -> str:
    """What the card in the folder says that the licence is; empty: it says none."""
    if not exists(fs, f"{path}/{_CARD}"):
        return ""
    head = fs.cat_file(f"{path}/{_CARD}")[: 1 << 16].decode("utf-8-sig", errors="replace").replace("\r\n", "\n")
    found = _LICENCE.search(head.partition("\n---")[0]) if head.startswith("---") else None
    return found[1].strip() if found else ""


def _made(counts: Mapping[str, Any]) -> str:
    made = ImportedCounts.parse(counts)
    named, left = (f"{made.name}, " if made.name else ""), ", ".join(made.left_out[:3])
    without = f", without {left}{' ...' if len(made.left_out) > 3 else ''}" if left else ""
    return f"{named}{(made.parameters or 0) / 1e6:,.1f} M parameters{without}"
