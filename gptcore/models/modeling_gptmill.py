"""Models of gptmill for transformers, in the folder of each that transformers has no class for.

``AutoModel...from_pretrained(folder, trust_remote_code=True)`` needs torch and transformers alone.

Legend of the shape comments: B batch, C sequences an example, R sequences, T positions, D width of the states, H heads,
K outputs of the linear layer.
"""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor, nn
from transformers import AutoConfig, AutoModel, GenerationMixin, PretrainedConfig, PreTrainedModel
from transformers import modeling_outputs as outputs

from .ngrams import NGrams


class GptmillConfig(PretrainedConfig):
    """What ``config.json`` says.

    :param network: the settings of what is below the heads; "kind" says which network here it is.
    :param classifier: how a fine-tuned model answers rows.
    """

    model_type = "gptmill"

    def __init__(self, network: Any = None, classifier: Any = None, **others: Any) -> None:
        self.network, self.classifier = network or {}, classifier or {}
        super().__init__(**others)


class Attention(nn.Module):
    """Multi-headed self-attention, whose keys may be mixed with those before them, and turned by their positions."""

    def __init__(self, c: SimpleNamespace) -> None:
        super().__init__()
        self.n_head, self.rotary, self.pdrop = c.n_head, c.rotary, c.attn_pdrop
        self.qkv, self.projection = nn.Linear(c.n_embd, 3 * c.n_embd), nn.Linear(c.n_embd, c.n_embd)
        self.smear = nn.Parameter(torch.zeros(c.n_head)) if c.smeared_keys else None

    def forward(self, x: Tensor, seen: Tensor | None) -> Tensor:
        """[R, T, D] -> [R, T, D]; ``seen`` [R, 1, 1, T]: which positions all see; None: those up to each itself."""
        q, k, v = (part.unflatten(-1, (self.n_head, -1)).transpose(1, 2) for part in self.qkv(x).chunk(3, -1))
        if self.smear is not None:
            before = torch.cat([k[:, :, :1], k[:, :, :-1]], 2)
            k = torch.lerp(k, before, torch.sigmoid(self.smear)[:, None, None].to(k.dtype))
        if self.rotary:
            q, k = rotated(q), rotated(k)
        rate = self.pdrop if self.training else 0.0
        mixed = F.scaled_dot_product_attention(q, k, v, attn_mask=seen, dropout_p=rate, is_causal=seen is None)
        return self.projection(mixed.transpose(1, 2).flatten(2))


def rotated(x: Tensor) -> Tensor:
    """Queries or keys [R, H, T, D/H], each pair of their numbers turned by an angle that grows with the position."""
    first, second = x.chunk(2, -1)
    rates = 10_000 ** -torch.linspace(0, 1, first.shape[-1] + 1, device=x.device)[:-1]
    angles = torch.arange(x.shape[2], device=x.device)[:, None] * rates  # (T, D/H/2)
    cos, sin = angles.cos().to(x.dtype), angles.sin().to(x.dtype)
    return torch.cat([first * cos - second * sin, first * sin + second * cos], -1)


class Block(nn.Module):
    """Attention and a position-wise network, with norms behind them (GPT-1) or before them (GPT-2)."""

    def __init__(self, c: SimpleNamespace) -> None:
        super().__init__()
        self.norm_first, self.pdrop = c.norm_first, c.resid_pdrop
        self.attention = Attention(c)
        layers = {"inner": nn.Linear(c.n_embd, c.n_inner), "projection": nn.Linear(c.n_inner, c.n_embd)}
        self.feed_forward = nn.ModuleDict(layers)
        self.norm_1, self.norm_2 = (nn.LayerNorm(c.n_embd, eps=1e-5) for _ in range(2))

    def forward(self, x: Tensor, seen: Tensor | None) -> Tensor:
        """[R, T, D] -> [R, T, D]; see :meth:`Attention.forward`."""
        for norm, layer in ((self.norm_1, lambda y: self.attention(y, seen)), (self.norm_2, self._fed)):
            added = F.dropout(layer(norm(x) if self.norm_first else x), self.pdrop, self.training)
            x = x + added if self.norm_first else norm(x + added)
        return x

    def _fed(self, x: Tensor) -> Tensor:
        return self.feed_forward["projection"](F.gelu(self.feed_forward["inner"](x), approximate="tanh"))


class Decoder(nn.Module):
    """GPT-1, GPT-2, and what gptmill makes of them; GPT-BERT's network sees a sequence whole where it is told to."""

    def __init__(self, c: SimpleNamespace) -> None:
        super().__init__()
        self.pdrop, self.both_ways = c.embd_pdrop, c.kind == "both-ways"
        self.tokens = nn.Embedding(c.n_vocab + c.n_special, c.n_embd)
        self.positions = nn.Embedding(c.n_ctx, c.n_embd)
        self.blocks = nn.ModuleList(Block(c) for _ in range(c.n_layer))
        self.norm = nn.LayerNorm(c.n_embd, eps=1e-5) if c.norm_first else nn.Identity()

    def forward(self, tokens: Tensor, mask: Tensor, segments: Tensor | None, whole: bool) -> Tensor:
        x = self.tokens(tokens) + self.positions.weight[: tokens.shape[1]]
        x = F.dropout(x, self.pdrop, self.training)
        for block in self.blocks:
            x = block(x, mask.bool()[:, None, None] if whole and self.both_ways else None)
        return self.norm(x)


class Recurrent(nn.Module):
    """An LSTM whose units are projected back to the width of the embeddings."""

    def __init__(self, c: SimpleNamespace) -> None:
        super().__init__()
        self.tokens = nn.Embedding(c.n_vocab + c.n_special, c.n_embd)
        self.recurrent = nn.LSTM(c.n_embd, c.n_units, batch_first=True)
        self.projection = nn.Linear(c.n_units, c.n_embd)

    def forward(self, tokens: Tensor, mask: Tensor, segments: Tensor | None, whole: bool) -> Tensor:
        return self.projection(self.recurrent(self.tokens(tokens))[0])


class Theirs(nn.Module):
    """A network that transformers has itself, below our heads."""

    def __init__(self, c: SimpleNamespace) -> None:
        super().__init__()
        self.model = AutoModel.from_config(AutoConfig.for_model(**c.trunk))
        if hasattr(self.model, "pooler"):
            self.model.pooler = None  # it is one of ours, where there is one
        self.pooler: Any = nn.Linear(c.n_embd, c.n_embd) if c.pooler is True else None
        if c.pooler == "norm":  # ModernBERT's
            norm = nn.LayerNorm(c.n_embd, eps=c.trunk["norm_eps"], bias=False)
            self.pooler = nn.ModuleDict({"dense": nn.Linear(c.n_embd, c.n_embd, bias=False), "norm": norm})
        self.tells_segments = c.segments

    def forward(self, tokens: Tensor, mask: Tensor, segments: Tensor | None, whole: bool) -> Tensor:
        marks = {"token_type_ids": segments} if self.tells_segments else {}
        return self.model(tokens, attention_mask=mask, **marks).last_hidden_state

    def pooled(self, first: Tensor) -> Tensor:
        """What stands for sequences, [R, D], of their first states."""
        if isinstance(self.pooler, nn.ModuleDict):
            return self.pooler["norm"](F.gelu(self.pooler["dense"](first)))
        return first if self.pooler is None else torch.tanh(self.pooler(first))


KINDS = {"decoder": Decoder, "both-ways": Decoder, "recurrent": Recurrent, "transformers": Theirs}


class GptmillModel(PreTrainedModel):
    """A network, with the layers on it that its folder holds; padding may stand on either side of a sequence."""

    config_class = GptmillConfig

    def __init__(self, config: GptmillConfig) -> None:
        super().__init__(config)
        c, how = SimpleNamespace(**config.network), config.classifier
        self.gpt: Any = KINDS[c.kind](c)
        if how:
            self.head = nn.Linear(c.n_embd, how["n_outputs"])
            self.layer = nn.Linear(c.n_embd, c.n_embd) if how["layer"] else None
            ids = torch.zeros(c.n_vocab + c.n_special, dtype=torch.uint8)
            self.ngrams = NGrams(how["ngrams"], how["n_outputs"], ids) if how["ngrams"] else None
        self.post_init()

    def get_input_embeddings(self) -> Any:
        """The table of the vocabulary."""
        return self.gpt.model.get_input_embeddings() if isinstance(self.gpt, Theirs) else self.gpt.tokens

    def forward(
        self, input_ids: Tensor, attention_mask: Tensor | None = None, token_type_ids: Tensor | None = None, **_: Any
    ) -> Any:
        mask = torch.ones_like(input_ids) if attention_mask is None else attention_mask
        return self.answer(input_ids, mask, token_type_ids)

    def answer(self, tokens: Tensor, mask: Tensor, segments: Tensor | None) -> Any:
        """What the model gives for ids, 1 for each that is no padding, and numbers of segments: [B, T] each."""
        return outputs.BaseModelOutput(self.states(tokens, mask, segments))

    def states(self, tokens: Tensor, mask: Tensor, segments: Tensor | None, whole: bool = True) -> Tensor:
        """The states of all positions, [R, T, D], of sequences read as a whole where the network can."""
        back = (mask == 0).long().argsort(dim=1, stable=True).argsort(1)
        states = self.gpt(*padding_last(tokens, mask, segments), whole)
        return states.gather(1, back[..., None].expand_as(states))

    def told(self, tokens: Tensor, mask: Tensor, segments: Tensor | None) -> tuple[Tensor, Tensor]:
        """What stands for each sequence, [R, D], and the logits of its n-grams, [R, K]; padding stands behind it."""
        how, ends = self.config.classifier, mask.sum(1) - 1
        states = self.gpt(tokens, mask, segments, True)
        summary = states[torch.arange(len(ends), device=ends.device), ends if how["last"] else 0]
        if isinstance(self.gpt, Theirs):
            summary = self.gpt.pooled(summary)
        if self.layer is not None:
            summary = F.relu(self.layer(summary))
        if how["pooling"]:
            summary = summary + (states * mask[..., None]).sum(1) / mask.sum(1, keepdim=True)
        if self.ngrams is None:
            return summary, summary.new_zeros(len(summary), how["n_outputs"])
        return summary, self.ngrams(tokens[:, None], ends[:, None])[:, 0]


def padding_last(tokens: Tensor, mask: Tensor, segments: Tensor | None) -> tuple[Tensor, Tensor, Tensor | None]:
    """Tokens, mask and segments [R, T] with the padding of each sequence moved behind it."""
    order = (mask == 0).long().argsort(dim=1, stable=True)
    return tokens.gather(1, order), mask.gather(1, order), None if segments is None else segments.gather(1, order)


def swapped(tokens: Tensor, mask: Tensor, delimiter: int) -> Tensor:
    """Ids [R, T] with the two texts around each delimiter in the other order, between the first token and the last."""
    at, last = torch.arange(tokens.shape[1], device=tokens.device), mask.sum(1, keepdim=True) - 1
    cut = (tokens == delimiter).int().argmax(1, keepdim=True)
    behind = last - cut
    source = torch.where(at < behind, at + cut, torch.where(at == behind, cut, at - behind))
    return tokens.gather(1, torch.where((at == 0) | (at >= last), at, source))


class GptmillForCausalLM(GptmillModel, GenerationMixin):
    """Logits of the next token; generation reads the whole text for each."""

    def prepare_inputs_for_generation(self, input_ids: Any, *_: Any, attention_mask: Any = None, **__: Any) -> Any:
        room = self.config.max_position_embeddings
        mask = None if attention_mask is None else attention_mask[:, -room:]
        return {"input_ids": input_ids[:, -room:], "attention_mask": mask}

    def answer(self, tokens: Tensor, mask: Tensor, segments: Tensor | None) -> outputs.CausalLMOutput:
        states = self.states(tokens, mask, None, whole=False)
        return outputs.CausalLMOutput(logits=states @ self.gpt.tokens.weight.T)


class GptmillForMaskedLM(GptmillModel):
    """GPT-BERT's logits of hidden words, each from the state before it."""

    def answer(self, tokens: Tensor, mask: Tensor, segments: Tensor | None) -> outputs.MaskedLMOutput:
        states = self.states(tokens, mask, segments)
        before = torch.cat([states[:, :1], states[:, :-1]], 1)
        return outputs.MaskedLMOutput(logits=before @ self.gpt.tokens.weight.T)


class GptmillForSequenceClassification(GptmillModel):
    """Logits of classes; of a graded task the score itself, which is the mean of its classes."""

    def answer(self, tokens: Tensor, mask: Tensor, segments: Tensor | None) -> outputs.SequenceClassifierOutput:
        how = self.config.classifier
        tokens, mask, segments = padding_last(tokens, mask, segments)
        summary, words = self.told(tokens, mask, segments)
        if how["delimiter"] is not None:  # neither text of a pair is the first, so both orders are read
            other = self.told(swapped(tokens, mask, how["delimiter"]), mask, segments)
            summary, words = summary + other[0], words + other[1]
        logits = self.head(summary) + words
        if how["score_range"]:
            low, high = how["score_range"]
            classes = torch.arange(low, high + 1, device=logits.device, dtype=logits.dtype)
            logits = (logits.softmax(-1) * classes).sum(-1, keepdim=True)
        return outputs.SequenceClassifierOutput(logits=logits)


class GptmillForMultipleChoice(GptmillModel):
    """Logits of the choices [B, C], each of which is a sequence of its own: ids [B, C, T]."""

    def answer(self, tokens: Tensor, mask: Tensor, segments: Tensor | None) -> outputs.MultipleChoiceModelOutput:
        flat = None if segments is None else segments.flatten(0, 1)
        summary, words = self.told(*padding_last(tokens.flatten(0, 1), mask.flatten(0, 1), flat))
        return outputs.MultipleChoiceModelOutput(logits=(self.head(summary) + words).view(tokens.shape[:2]))


class GptmillForTokenClassification(GptmillModel):
    """Logits of each position's tags, of which those at the first piece of each word mean something."""

    def answer(self, tokens: Tensor, mask: Tensor, segments: Tensor | None) -> outputs.TokenClassifierOutput:
        return outputs.TokenClassifierOutput(logits=self.head(self.states(tokens, mask, segments)))


class GptmillForQuestionAnswering(GptmillModel):
    """Logits of an answer's start and end at each position; the first one stands for no answer."""

    def answer(self, tokens: Tensor, mask: Tensor, segments: Tensor | None) -> outputs.QuestionAnsweringModelOutput:
        places = self.head(self.states(tokens, mask, segments)).masked_fill(mask[..., None] == 0, -torch.inf)
        return outputs.QuestionAnsweringModelOutput(start_logits=places[..., 0], end_logits=places[..., 1])
