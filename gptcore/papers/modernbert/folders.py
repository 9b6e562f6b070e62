"""Hugging Face's folders of ModernBERT."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

from gptcore.base.errors import require
from gptcore.base.files import checked_object
from gptcore.base.tables import read_table
from gptcore.models.files.encoders import EncoderLayout
from gptcore.models.files.layout import ForeignTensors, OtherNetwork
from gptcore.papers.modernbert.config import ModernBertConfig

_WHOLE, _NEAR = "full_attention", "sliding_attention"
_THETAS = {"theta": (_WHOLE, "global_rope_theta"), "local_theta": (_NEAR, "local_rope_theta")}


class ModernBertLayout(EncoderLayout):
    """Folders that say which layers see what is near alone, and how positions turn in either kind."""

    def _settings_of(self, settings: Mapping[str, Any], theirs: ForeignTensors, where: str) -> dict[str, Any]:
        fields = super()._settings_of(settings, theirs, where)
        kinds = settings.get("layer_types") or []
        require(isinstance(kinds, list), f"{where}: layer_types: found {kinds!r:.60}, expected a list")
        whole = [number for number, kind in enumerate(kinds) if kind == _WHOLE]
        every = settings.get("global_attn_every_n_layers", 3)
        if kinds:
            every = whole[1] if len(whole) > 1 else len(kinds)
        if not isinstance(every, int) or every < 1 or (kinds and kinds != _kinds(len(kinds), every)):
            raise OtherNetwork(f"{where}: layer_types: expected one of {_WHOLE} and others of {_NEAR} by turns")
        turns = checked_object(settings.get("rope_parameters") or {}, f"{where}: rope_parameters", "a JSON object")
        for ours, (kind, older) in _THETAS.items():
            its = checked_object(turns.get(kind) or {}, f"{where}: rope_parameters: {kind}", "a JSON object")
            scaling = its.get("rope_type", "default")
            if scaling != "default":
                raise OtherNetwork(f"{where}: rope_type = {scaling!r:.60}, expected 'default'")
            fields[ours] = its.get("rope_theta", settings.get(older, getattr(ModernBertConfig, ours)))
        pooler = "head.dense.weight" in theirs
        return fields | {"global_every": every, "pooler": pooler, "words": pooler and fields["words"]}

    def _settings(self, config: ModernBertConfig) -> dict[str, Any]:  # type: ignore[override]
        thetas = {kind: getattr(config, ours) for ours, (kind, _) in _THETAS.items()}
        return {
            **super()._settings(config),
            "global_attn_every_n_layers": config.global_every,
            "layer_types": _kinds(config.n_layer, config.global_every),
            "rope_parameters": {kind: {"rope_type": "default", "rope_theta": its} for kind, its in thetas.items()},
            **{older: getattr(config, ours) for ours, (_, older) in _THETAS.items()},  # up to transformers 4
            "classifier_pooling": "cls",
            # where the tokenizer says none; transformers' own are ids of the released vocabulary
            **{f"{role}_token_id": None for role in ("pad", "bos", "eos", "cls", "sep")},
        }

    def _prefixed(self, name: str) -> str:
        return name if name.startswith(("head.", "decoder.")) else f"{self.prefix}.{name}"

    def _names(self, config: ModernBertConfig) -> Iterator[tuple[str, tuple[str, ...]]]:  # type: ignore[override]
        return ((ours, its) for ours, its in super()._names(config) if ours != "attention.0.norm.weight")


def _kinds(n_layer: int, every: int) -> list[str]:
    """What each layer sees."""
    return [_NEAR if number % every else _WHOLE for number in range(n_layer)]


MODERNBERT = ModernBertLayout(**read_table(__file__, "layout.toml"))
