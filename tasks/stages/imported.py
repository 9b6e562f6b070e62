"""Stage `imported`: a language model that was trained elsewhere, with its tokenizer, as an artifact of the store."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

from prefect import task

from gptcore.base.errors import InputError
from gptcore.base.files import sha256_json
from gptcore.base.filesystems import exists, file_fingerprint, file_system
from gptcore.base.settings import recorded
from gptcore.config import TokenizerConfig
from gptcore.models.files.read import read_model
from tasks.stages.stage import STAGE_OPTIONS, build
from tasks.stages.tokenizer import pin_tokenizer
from tasks.store.artifact import Artifact, Recipe
from tasks.store.store import Store

VERSION = 1
_WEIGHTS = ("model.safetensors", "pytorch_model.bin")


def is_model_folder(ref: str) -> bool:
    """Whether ``ref`` is a folder with a model of Hugging Face's kind and its tokenizer."""
    if not ref or ("/" not in ref and not Path(ref).is_dir()):
        return False
    fs, path = file_system(ref)
    return exists(fs, f"{path}/config.json") and any(exists(fs, f"{path}/{name}") for name in _WEIGHTS)


@task(name="imported", task_run_name="imported model", **STAGE_OPTIONS)
def import_model(store: Store, url: str) -> Artifact:
    """The language model in a folder (any fsspec URL) of Hugging Face's; it goes by its content, wherever it lies.

    :raises InputError: no such model, one of another kind, or a vocabulary of another size than the model's.
    """
    config, tensors = read_model(url)
    tokenizer = pin_tokenizer(store, url, TokenizerConfig(family=config.family))
    fs, path = file_system(url)
    names = ["config.json", next(name for name in _WEIGHTS if exists(fs, f"{path}/{name}"))]
    files = {name: file_fingerprint(f"{url.rstrip('/')}/{name}") for name in names}
    known = store.manifest(tokenizer)["counts"]
    if known["n_vocab"] != config.n_vocab:
        raise InputError(f"{url}: the model has n_vocab = {config.n_vocab}, its tokenizer {known['n_vocab']}")
    recipe = Recipe(
        "imported", VERSION, {"model": recorded(config)}, {"tokenizer": tokenizer, "files": sha256_json(files)}
    )

    def produce(out: Path) -> dict[str, Any]:
        from gptcore.models.build import build_model

        model = build_model(config).fill(tensors, url)
        model.save(out / "model")
        return {"parameters": model.num_parameters, "tokenizer_digest": known["tokenizer_digest"]}

    return build(store, recipe, produce, "imported", _made).artifact


def _made(counts: Mapping[str, Any]) -> str:
    return f"{counts['parameters'] / 1e6:,.1f} M parameters"
