"""Reading with a cache against the plain forward pass; sampling against its definition; text as decoded whole."""

from __future__ import annotations

import itertools

import pytest
import torch

from gptcore.base.errors import InputError
from gptcore.config import LSTMConfig, ModelConfig
from gptcore.evaluation import generate as generation
from gptcore.evaluation.generate import generate, generate_batch, generate_ids, penalised, sample
from gptcore.machine.rng import generator
from gptcore.models.incremental import Cache, open_reader, step
from gptcore.models.network import LanguageModel
from gptcore.models.products import Packed, linear, packed
from gptcore.models.transformer import GPT
from gptcore.papers.analyses.lstm import LSTM
from gptcore.text.bpe import WordTokenizer
from gptcore.text.byte_bpe import ByteTokenizer

TEXT = "the cat sat on the mat because it was tired . \n who said that a bird runs ?"
WORDS = WordTokenizer.train([TEXT] * 3, 40)


def gpt(n_ctx: int = 12, **changes: object) -> GPT:
    torch.manual_seed(3)
    config = ModelConfig(
        n_vocab=WORDS.n_vocab, n_ctx=n_ctx, n_layer=3, n_head=2, n_embd=16, n_inner=32, init_std=0.4, **changes
    )
    return GPT(config).eval()


def lstm() -> LSTM:
    torch.manual_seed(3)
    return LSTM(LSTMConfig(n_vocab=WORDS.n_vocab, n_ctx=12, n_units=24, n_embd=16, init_std=0.4)).eval()


def random_ids(count: int, seed: int = 0) -> list[int]:
    return torch.randint(1, WORDS.n_vocab, (count,), generator=torch.Generator().manual_seed(seed)).tolist()


@torch.no_grad()
def plain_logits(model: LanguageModel, ids: list[int]) -> torch.Tensor:
    return model(torch.tensor([ids]))[0, -1]


@pytest.mark.parametrize(
    "changes",
    [{}, {"original": True}, {"n_special": 3}, {"norm_first": True}, {"smeared_keys": True}, {"rotary": True}],
)
@pytest.mark.parametrize("cuts", [[1] * 12, [5, 1, 1, 5], [12], [3, 9]])
def test_every_step_agrees_with_the_full_pass(changes, cuts):
    model, ids = gpt(**changes), random_ids(12)
    reader, done = open_reader(model), 0
    for count in cuts:
        (found,) = reader.feed([ids[done : done + count]])
        done += count
        torch.testing.assert_close(found, plain_logits(model, ids[:done]), atol=1e-5, rtol=0)


def test_a_step_gives_the_states_of_all_new_tokens_of_a_batch():
    model = gpt()
    tokens = torch.tensor([random_ids(12, 1), random_ids(12, 2)])
    cache = Cache.empty(model, batch=2)
    with torch.no_grad():
        found = torch.cat([step(model, part, cache) for part in tokens.split([4, 1, 7], dim=1)], dim=1)
        torch.testing.assert_close(found, model.hidden(tokens), atol=1e-5, rtol=0)
        with pytest.raises(ValueError, match="13 tokens does not fit n_ctx = 12"):
            step(model, tokens[:, :1], cache)


@pytest.mark.parametrize("open_model", ["gpt", "smeared", "lstm"])
@pytest.mark.parametrize("lengths", [[3, 3, 3], [1, 5, 2], [12, 1, 4], [30, 2, 11]])
def test_texts_of_any_lengths_are_read_together_as_each_alone(open_model, lengths):
    """Over 30 tokens more, through the ends of three contexts, which every text meets at a token of its own."""
    model = lstm() if open_model == "lstm" else gpt(smeared_keys=(smeared := open_model == "smeared"), rotary=smeared)
    texts = [random_ids(length + 30, seed) for seed, length in enumerate(lengths)]
    together, alone = open_reader(model, 3), [open_reader(model) for _ in texts]
    new = [text[:length] for text, length in zip(texts, lengths, strict=True)]
    for done in range(31):
        expected = torch.cat([reader.feed([ids]) for reader, ids in zip(alone, new, strict=True)])
        torch.testing.assert_close(together.feed(new), expected, atol=1e-5, rtol=0)
        if done < 30:
            new = [[text[length + done]] for text, length in zip(texts, lengths, strict=True)]


@pytest.mark.parametrize("rows", [1, 2, 8, 65])
def test_products_with_packed_weights_are_the_plain_ones(rows):
    model = gpt()
    plain, fast = (each.blocks[0].feed_forward.inner for each in (model, packed(model, rows)))
    assert (fast.packed is not None) == (fast is not plain) == (rows in (2, 8))
    assert fast.weight is plain.weight
    assert plain.packed is None
    table = model.tokens.weight
    for shape in [(rows, 1, 16), (rows, 16), (3, 5, 16)]:
        x = torch.randn(shape, generator=torch.Generator().manual_seed(0))
        with torch.no_grad():
            torch.testing.assert_close(fast(x), plain(x))
            torch.testing.assert_close(linear(x, table, None, Packed.of(table, rows)), model.logits(x))


@pytest.mark.parametrize("n_ctx", [1, 2, 7, 12])
def test_a_text_that_outgrows_the_context_goes_on_from_its_newest_half(n_ctx):
    model, ids = gpt(n_ctx), random_ids(40)
    reader, window = open_reader(model), []
    for token in ids:
        window.append(token)
        if len(window) > n_ctx:
            window = window[-max(1, n_ctx // 2) :]
        torch.testing.assert_close(reader.feed([[token]])[0], plain_logits(model, window), atol=1e-5, rtol=0)
    newest = plain_logits(model, ids[-max(1, n_ctx // 2) :])  # of a prompt, too, that is longer than the context
    torch.testing.assert_close(open_reader(model).feed([ids])[0], newest, atol=1e-5, rtol=0)


def test_an_lstm_carries_its_state_over_any_length():
    model, ids = lstm(), random_ids(40)
    reader = open_reader(model)
    torch.testing.assert_close(reader.feed([ids[:3]])[0], plain_logits(model, ids[:3]), atol=1e-5, rtol=0)
    for end in range(4, 41):
        (found,) = reader.feed([[ids[end - 1]]])
        torch.testing.assert_close(found, plain_logits(model, ids[:end]), atol=1e-5, rtol=0)


# --- drawing ---


def drawn(logits: torch.Tensor, count: int = 4000, **settings: float) -> torch.Tensor:
    """Shares of each token in many draws."""
    chosen = {"temperature": 1.0, "top_k": 0, "top_p": 1.0, **settings}
    draws = generator(0, "test")
    found = torch.tensor([sample(logits, draws=draws, **chosen) for _ in range(count)])
    return torch.bincount(found, minlength=len(logits)) / count


LOGITS = torch.tensor([0.4, 0.3, 0.05, 0.2, 0.05]).log()


@pytest.mark.parametrize(
    ("settings", "expected"),
    [
        ({}, [0.4, 0.3, 0.05, 0.2, 0.05]),
        ({"temperature": 0.5}, [0.16 / 0.295, 0.09 / 0.295, 0.0025 / 0.295, 0.04 / 0.295, 0.0025 / 0.295]),
        ({"temperature": 0}, [1, 0, 0, 0, 0]),
        ({"temperature": 1e-310}, [1, 0, 0, 0, 0]),
        ({"top_k": 1}, [1, 0, 0, 0, 0]),
        ({"top_k": 2}, [4 / 7, 3 / 7, 0, 0, 0]),
        ({"top_k": 99}, [0.4, 0.3, 0.05, 0.2, 0.05]),
        ({"top_p": 0.1}, [1, 0, 0, 0, 0]),
        ({"top_p": 0.65}, [4 / 7, 3 / 7, 0, 0, 0]),
        ({"top_p": 0.85}, [4 / 9, 3 / 9, 0, 2 / 9, 0]),
        ({"top_k": 2, "top_p": 0.5}, [1, 0, 0, 0, 0]),  # 4/7 of what top-k leaves
    ],
)
def test_tokens_are_drawn_as_the_settings_say(settings, expected):
    torch.testing.assert_close(drawn(LOGITS, **settings), torch.tensor(expected, dtype=torch.float), atol=0.03, rtol=0)


def test_a_token_is_left_out_where_the_likelier_ones_have_all_of_top_p():
    assert drawn(torch.zeros(4), count=200, top_p=0.5)[2:].tolist() == [0, 0]


# --- text ---


@pytest.mark.parametrize("model", [gpt(), lstm(), gpt(n_special=3)], ids=["gpt", "lstm", "fine-tuned"])
def test_pieces_put_together_are_the_decoded_whole(model):
    pieces = list(generate(model, WORDS, "The cat", max_tokens=60, seed=1))
    assert len(pieces) == 60
    ids = WORDS.encode("The cat")
    reader, draws = open_reader(model), generator(1, "generate")
    (logits,) = reader.feed([ids])
    for _ in range(60):
        ids.append(sample(logits[: WORDS.n_vocab], 1.0, 0, 1.0, draws))
        (logits,) = reader.feed([ids[-1:]])
    assert "the cat" + "".join(pieces) == WORDS.decode(ids)


def test_every_pair_of_pieces_is_set_apart_as_in_the_whole_text():
    for first, second in itertools.product(range(0, WORDS.n_vocab, 3), repeat=2):
        whole = WORDS.decode([5, first, second])
        parts = WORDS.decode([5, first]) + WORDS.decode([first, second])[len(WORDS.decode([first])) :]
        assert whole == parts


def test_a_seed_names_the_text_and_greedy_text_needs_none():
    model = gpt()

    def text(**settings: float) -> str:
        return "".join(generate(model, WORDS, "a bird", max_tokens=20, **settings))

    assert text(seed=1) == text(seed=1) != text(seed=2)
    assert text(temperature=0, seed=1) == text(temperature=0, seed=2) == text(top_k=1) == text(top_p=1e-9)


PROMPTS = ["the cat", "who said that a bird runs because it was tired . who sat on the mat ?", "a", "the cat"]


@pytest.mark.parametrize("model", [gpt(), lstm(), gpt(n_special=3)], ids=["gpt", "lstm", "fine-tuned"])
@pytest.mark.parametrize("settings", [{"temperature": 0}, {"seed": 5}, {"top_k": 7, "top_p": 0.8, "temperature": 1.5}])
def test_a_batch_is_what_each_prompt_gives_alone_with_draws_of_its_own(model, settings):
    found = generate_batch(model, WORDS, PROMPTS, max_tokens=40, **settings)
    seed = settings.pop("seed", 0)
    alone = [
        "".join(generate(model, WORDS, p, max_tokens=40, seed=seed + i, **settings)) for i, p in enumerate(PROMPTS)
    ]
    assert found == alone
    assert (found[0] == found[3]) == (settings.get("temperature") == 0)


def test_a_batch_of_none_one_with_an_empty_prompt_and_a_tokenizer_of_another_size():
    assert generate_batch(gpt(), WORDS, []) == []
    with pytest.raises(InputError, match=f"n_vocab = {WORDS.n_vocab}, expected the tokenizer's"):
        generate(gpt(), WordTokenizer.train(["a b c"], 1), "a")
    with pytest.raises(InputError, match="prompt: found '', expected a word"):
        generate_batch(gpt(), WORDS, ["the cat", ""])


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        ({"max_tokens": 0}, "max_tokens: found 0, expected 1 or more"),
        ({"temperature": -1.0}, "temperature: found -1.0, expected 0 or more"),
        ({"temperature": float("nan")}, "temperature: found nan"),
        ({"top_k": -1}, "top_k: found -1"),
        ({"top_p": 0.0}, "top_p: found 0.0, expected more than 0, at most 1"),
        ({"prompt": " \n"}, "prompt: found ' .n', expected a word"),
    ],
)
def test_settings_out_of_range_are_refused_at_once(settings, message):
    with pytest.raises(InputError, match=message):
        generate(gpt(), WORDS, **{"prompt": "the cat", **settings})


# --- ids, with marks in the prompt and an end ---


def test_ids_are_the_texts_own_and_end_where_they_should():
    model = gpt(n_special=2)
    prompts = [[WORDS.n_vocab, *WORDS.encode("the cat"), WORDS.n_vocab + 1], WORDS.encode("a bird")]
    settings = {"n_vocab": WORDS.n_vocab, "max_tokens": 30, "seed": 4}
    whole = generate_ids(model, prompts, **settings)
    assert [len(ids) for ids in whole] == [30, 30]
    assert all(index < WORDS.n_vocab for ids in whole for index in ids)
    assert generate_ids(model, prompts[1:], **{**settings, "seed": 5}) == whole[1:]
    stop = whole[0][7]
    stopped = generate_ids(model, prompts, stop=[stop], **settings)
    assert stopped == [ids[: ids.index(stop)] if stop in ids else ids for ids in whole]
    assert generate_ids(model, [], **settings) == []
    with pytest.raises(InputError, match="found one without ids"):
        generate_ids(model, [[3], []], **settings)
    with pytest.raises(InputError, match=r"repetition_penalty: found 0\.5, expected 1 or more"):
        generate_ids(model, prompts, repetition_penalty=0.5, **settings)


def test_a_repetition_penalty_makes_held_ids_less_likely_whatever_their_sign():
    logits = torch.tensor([[2.0, -1.0, 0.5, 0.0], [2.0, -1.0, 0.5, 0.0]])
    found = penalised(logits, [{0, 1, 9}, set()], 2.0)
    assert found.tolist() == [[1.0, -2.0, 0.5, 0.0], [2.0, -1.0, 0.5, 0.0]]
    assert logits[0, 0] == 2.0
    assert penalised(logits, [{0}, {1}], 1.0) is logits


def test_a_prompt_stays_in_sight_of_a_text_that_outgrows_the_context():
    model, prompt = gpt(n_ctx=12), random_ids(4)
    found = generate_ids(model, [prompt], n_vocab=WORDS.n_vocab, max_tokens=40, temperature=0)[0]
    window = list(prompt)
    for index in found:
        if len(window) > 12:
            window = [*prompt, *window[-4:]]  # half of the room behind the prompt
        assert index == int(plain_logits(model, window)[: WORDS.n_vocab].argmax())
        window.append(index)


def test_a_strong_penalty_leaves_no_word_twice():
    ids = generate_ids(
        gpt(n_ctx=40), [[3, 4]], n_vocab=WORDS.n_vocab, max_tokens=20, temperature=0, repetition_penalty=1e6
    )[0]
    assert len({3, 4, *ids}) == 2 + len(ids)


def test_a_text_ends_where_the_model_says_so(monkeypatch):
    """GPT-2's mark is written as no text, and what would follow it is another document."""
    words = ByteTokenizer.train(["the old king"], 4)
    ids, end = words.encode("the old king")[:3], words.end_of_text
    columns = [[ids[0], ids[0]], [end, ids[1]], [ids[2], ids[2]]]  # of two texts, a token a line
    monkeypatch.setattr(generation, "_drawn", lambda *_, **__: iter(columns))
    model = GPT(ModelConfig(n_vocab=words.n_vocab, n_ctx=12, n_layer=1, n_head=2, n_embd=16, n_inner=32)).eval()
    assert generate_batch(model, words, ["a", "b"], max_tokens=3) == [words.decode(ids[:1]), words.decode(ids)]
    columns[2:] = [[end, end], [ids[0], ids[0]]]
    assert generate_batch(model, words, ["a", "b"], max_tokens=3) == [words.decode(ids[:1]), words.decode(ids[:2])]
    monkeypatch.setattr(generation, "_drawn", lambda *_, **__: iter([[row[0]] for row in columns]))
    assert list(generate(model, words, "a", max_tokens=3)) == [words.decode(ids[:1])]
    monkeypatch.setattr(generation, "_drawn", lambda *_, **__: iter([[end, end]]))
    assert generate_batch(model, words, ["a", "b"], max_tokens=3) == ["", ""]
