"""Abstracts from titles through Prefect's harness: every table, nothing twice, other people's models."""

from __future__ import annotations

import dataclasses
import json
from pathlib import Path
from typing import Any

import pytest
import torch
import transformers

from flows.cli.main import main
from flows.papers.abstracts import flow as abstracts
from flows.papers.abstracts.forms import AbstractsParameters, AbstractsTablesParameters, GenerateParameters
from gptcore.base.errors import InputError
from gptcore.config.sizes import Size
from gptcore.models.network import load_model
from gptcore.papers.abstracts.config import EVALUATION, SWEEPS
from gptcore.papers.abstracts.documents import SEPARATOR, START_OF_TEXT
from gptcore.papers.storyworld.web import archive
from gptcore.text.byte_bpe import ByteTokenizer
from tasks.papers.abstracts.stages import FILE, read_written
from tasks.report.analysis import Analysis
from tasks.report.figures import Figure
from tasks.store.artifact import Recipe
from tasks.store.store import Store
from tasks.tracking.tracker import Tracker
from tests.expected import expected
from tests.flows.world import LANGUAGE, OVERRIDES
from tests.tasks.stores import verify

pytestmark = pytest.mark.usefixtures("prefect_server")

OWN: dict[str, Any] = {
    "adapt": {"block_size": 24, "batch_size": 2, "epochs": 0.2, "evaluations": 2, "eval_blocks": 8},
    "sampling": {"max_tokens": 6},
}


def run(papers: str, store: str, world: tuple[str, str], **fields: Any) -> dict[str, Analysis]:
    corpus, language = ("", {}) if "checkpoint" in fields else (world[0], LANGUAGE)
    overrides = {**language, **OWN, **fields.pop("overrides", {})}
    given = {"arxiv": papers, "corpus": corpus, "store": store, "titles": 2, "overrides": overrides, **fields}
    return {found.name: found for found in abstracts.abstracts(AbstractsParameters(preset="demo", **given))}


@pytest.fixture(scope="module")
def found(papers: str, store: str, world: tuple[str, str], prefect_server: Path) -> dict[str, Analysis]:
    return run(papers, store, world)


def digests(store: str) -> dict[str, set[str]]:
    stages = ("papers", "papers-ids", "pretrain", "adapt", "written")
    return {stage: {artifact.digest for artifact in Store(store).list(stage)} for stage in stages}


def test_every_table_is_there_and_says_what_it_is_of(found: dict[str, Analysis], store: str) -> None:
    split = found["abstracts-table1"]
    assert [row[:3] for row in split.rows] == [
        ("train", "54", "90.00"),
        ("valid", "3", "5.00"),
        ("test", "3", "5.00"),
        ("total", "60", "100.00"),
    ]
    losses = found["abstracts-table8"]
    assert [row[0].partition(" (")[0] for row in losses.rows] == [
        "pre-trained",
        "from scratch",
        *(f"published {size}" for size in ("82M", "117M", "345M", "774M")),
    ]
    models = {a.short: Store(store).manifest(a)["counts"] for a in Store(store).list("adapt")}
    for row in losses.rows[:2]:
        counts = models[row[0].partition("(")[2].rstrip(")")]
        assert row[3] == f"{counts['test/loss']:.4f}"
    page = found["abstracts-generated"]
    (written,) = Store(store).list("written")
    lines = read_written(Store(store), written)
    assert [row[0] for row in page.rows] == [line["title"] for line in lines]
    (said,) = (note for note in page.notes if note.startswith("written by the model "))
    assert said.endswith("); max tokens 6, repetition penalty 1.2, seed 42, temperature 1, top k 0, top p 0.9")
    assert [line["real"] is None for line in lines] == [True] * 20 + [False] * 2  # the paper's own titles come first
    assert lines[0]["title"].startswith("A general reinforcement learning algorithm")
    html = page.table.html()
    assert html.count("<tr>") == 1 + 22
    assert "Negated LAMA: Birds cannot fly" in html
    (tracked,) = Tracker().search("gptmill/analysis", {"analysis": "abstracts-generated"})
    names = {file.path for file in Tracker().client.list_artifacts(tracked.info.run_id)}
    assert {"abstracts-generated.html", "abstracts-generated.md"} <= names
    assert {row[0]: row[2] for row in found["abstracts-measures"].rows}["ended"] == "1"


def test_each_training_has_a_run_with_its_losses(found: dict[str, Analysis], store: str) -> None:
    runs = {run.data.tags["store_digest"]: run for run in Tracker().search("gptmill/abstracts", {"kind": "adapt"})}
    for artifact in Store(store).list("adapt"):
        run = runs[artifact.digest]
        assert run.info.status == "FINISHED"
        assert run.data.metrics["test/perplexity"] == Store(store).manifest(artifact)["counts"]["test/perplexity"]
        assert run.info.run_name.startswith(("GPT-2 pre-trained ", "GPT-2 from scratch "))


def test_again_nothing_is_computed_and_another_rate_trains_alone(
    found: dict[str, Analysis], papers: str, store: str, world: tuple[str, str]
) -> None:
    before = digests(store)
    again = run(papers, store, world, jobs=1)
    assert digests(store) == before
    assert {name: analysis.rows for name, analysis in again.items()} == {n: a.rows for n, a in found.items()}
    run(papers, store, world, overrides={"adapt": {**OWN["adapt"], "lr": 2e-4}})
    after = digests(store)
    assert [len(after[stage]) - len(before[stage]) for stage in after] == [0, 0, 0, 2, 1]


def test_a_table_changes_one_setting_and_trains_what_is_missing(
    found: dict[str, Analysis], papers: str, store: str, world: tuple[str, str], monkeypatch: pytest.MonkeyPatch
) -> None:
    few = [dataclasses.replace(table, rows=dict(list(table.rows.items())[:2])) for table in SWEEPS[:2]]
    monkeypatch.setattr(abstracts, "SWEEPS", few)
    star = {**OWN["adapt"], "batch_size": 8}
    form = AbstractsTablesParameters(
        preset="demo", arxiv=papers, corpus=world[0], store=store, overrides={**LANGUAGE, "star": star}
    )
    before = digests(store)
    (alone,) = abstracts.abstracts_tables(form.model_copy(update={"only": ["table4"]}))
    assert len(digests(store)["adapt"] - before["adapt"]) == 2
    third, fourth = abstracts.abstracts_tables(form)
    assert alone.rows == fourth.rows
    assert [(row[0], row[5]) for row in third.rows] == [("1*", "1"), ("2", "2")]
    assert [(row[0], row[5]) for row in fourth.rows] == [("24*", "512"), ("12", "256")]
    assert third.rows[0][1:5] == fourth.rows[0][1:5]  # 82M* is one training
    assert third.rows[1][6:] == ("3.0758", "3.1319", "21.6677", "22.9174")
    after = digests(store)
    assert len(after["adapt"] - before["adapt"]) == 3
    assert [analysis.rows for analysis in abstracts.abstracts_tables(form)] == [third.rows, fourth.rows]
    assert digests(store) == after


def test_a_model_of_another_store_is_taught_and_writes(
    found: dict[str, Analysis],
    papers: str,
    store: str,
    world: tuple[str, str],
    tmp_path: Path,
    capsys: pytest.CaptureFixture[str],
) -> None:
    model = found["abstracts-table8"].identity["models"][0]
    start = Store(store).manifest(Store(store).resolve(model, "adapt"))["inputs"]["checkpoint"]["digest"]
    other = str(tmp_path / "other")
    elsewhere = run(papers, other, world, checkpoint=f"{store}/pretrain/{start}")
    for name in ("abstracts-table8", "abstracts-generated"):
        assert elsewhere[name].rows == found[name].rows
    assert not Store(other).list("pretrain")
    (words,) = Store(other).list("tokenizer")
    verify(Store(other), words)
    options = ["--prompt", "We", "--max-tokens", "3"]
    assert main(["generate", "--store", other, "--model", model[:12], *options]) == 0
    third = str(tmp_path / "third")
    form = GenerateParameters(titles=["Tides"], store=third, model=f"{other}/adapt/{model}", max_tokens=3)
    assert abstracts.generate(form).rows[0][0] == "Tides"


def test_sizes_stand_beside_each_other_where_no_shape_was_asked_for(
    found: dict[str, Analysis], papers: str, store: str, world: tuple[str, str], monkeypatch: pytest.MonkeyPatch
) -> None:
    sizes = [
        Size(f"1 x {width}", {"n_layer": 1, "n_head": 2, "n_embd": width, "n_inner": 4 * width}) for width in (8, 16)
    ]
    monkeypatch.setattr(abstracts, "SWEEPS", [dataclasses.replace(SWEEPS[0], rows={1: SWEEPS[0].rows[1]})])
    monkeypatch.setattr(abstracts, "SIZES", {"demo": sizes})
    whole = {"overrides": {**LANGUAGE, "model": {"n_ctx": 48}, "star": OWN["adapt"]}}
    form = AbstractsTablesParameters(preset="demo", arxiv=papers, corpus=world[0], store=store, **whole)
    _, table = abstracts.abstracts_tables(form)
    assert [row[0] for row in table.rows] == ["1 x 8", "1 x 16", *(f"published {size}" for size in EVALUATION)]
    assert isinstance(table.figure, Figure)
    assert table.figure.log_x, "sizes double"
    opened, names = Store(store), ("train", "valid", "test")
    for row, digest, size in zip(table.rows, table.identity["models"], sizes, strict=False):
        manifest = opened.manifest(opened.resolve(digest, "adapt"))
        start = opened.manifest(opened.artifact("pretrain", manifest["inputs"]["checkpoint"]["digest"]))
        assert {name: start["config"]["model"][name] for name in size.model} == size.model
        assert row[2:] == tuple(f"{manifest['counts'][f'{n}/{k}']:.4f}" for k in ("loss", "perplexity") for n in names)
    before = digests(store)
    (alone,) = abstracts.abstracts_tables(form.model_copy(update={"only": ["sizes"]}))
    assert alone.rows == table.rows
    assert digests(store) == before


def test_titles_of_a_form_get_abstracts(found: dict[str, Analysis], store: str, tmp_path: Path) -> None:
    titles = ["A rule for kilns", "Zurm: A Wet Theory"]
    form = GenerateParameters(titles=titles, store=store, max_tokens=5, out=str(tmp_path))
    page = abstracts.generate(form)
    assert [row[0] for row in page.rows] == titles
    assert all(row[1] for row in page.rows)
    assert abstracts.generate(form).rows == page.rows
    lines = page.text().splitlines()
    assert max(map(len, lines)) <= 100
    assert [line for line in lines if line.startswith("title: ")] == [f"title: {title}" for title in titles]
    assert sum(line.startswith("    generated: ") for line in lines) == 2
    assert abstracts.generate(form.model_copy(update={"seed": 7})).rows != page.rows
    assert {path.name for path in tmp_path.iterdir()} == {"generated.md", "generated.csv", "generated.html"}
    with pytest.raises(InputError, match="title 2: found ' ', expected a word or more"):
        abstracts.generate(form.model_copy(update={"titles": ["a", " "]}))


def test_blocks_that_nothing_fills_are_refused_before_any_training(
    papers: str, world: tuple[str, str], tmp_path: Path, prefect_server: Path
) -> None:
    few = tmp_path / "arxiv"
    few.mkdir()
    (few / "few.tsv").write_text(archive(3, 22), encoding="utf-8")
    store = str(tmp_path / "store")
    wide = {"model": {**OVERRIDES["model"], "n_ctx": 256}, "adapt": {"block_size": 256}}
    with pytest.raises(InputError, match=r"block_size = 256: the papers' split valid has [0-9]+ tokens, expected"):
        run(str(few), store, world, overrides=wide)
    large = {"adapt": {"block_size": 1000}, "star": {"block_size": 1000}}
    flows = (abstracts.abstracts, AbstractsParameters), (abstracts.abstracts_tables, AbstractsTablesParameters)
    for flow, parameters in flows:  # as a deployment runs it: nobody checked the form
        form = parameters(preset="demo", arxiv=papers, corpus=world[0], store=store, overrides=large)
        with pytest.raises(InputError, match=r"(adapt|star)\.block_size = [0-9]+: expected 96 or less, the model's"):
            flow(form)
    assert not Store(store).list("pretrain")


def test_an_abstract_on_demand(
    found: dict[str, Analysis], store: str, capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    generate = ["abstracts", "generate", "--store", store, "--title", "Late  Tides"]
    texts = []
    for more in ([], [], ["--seed", "1"]):
        assert main([*generate, *more]) == 0
        texts.append(capsys.readouterr().out)
    (tmp_path / "odd.toml").write_text("sampling = 3\n", encoding="utf-8")
    (tmp_path / "short.toml").write_text("[sampling]\nmax_tokens = 2\n", encoding="utf-8")
    assert main([*generate, "--config", str(tmp_path / "short.toml")]) == 0
    assert capsys.readouterr().out.endswith(" ...\n\n"), "cut, and says so"
    assert texts[0] == texts[1] != texts[2]
    assert texts[0].startswith("Late Tides\n\n")
    for arguments, message in (
        (["abstracts", "generate", "--store", store], "found no --title"),
        (["abstracts", "--store", store, "--title", "x"], "expected `gptmill abstracts generate`"),
        ([*generate, "--model", "ffff"], "ffff"),
        ([*generate, "--preset", "long"], "preset 'long' is not known"),
        ([*generate, "--config", str(tmp_path / "odd.toml")], "sampling = 3; expected a table of settings"),
        ([*generate, "--out", "folder"], "--out says nothing to a model that is there"),
        ([*generate, "--arxiv", "nowhere"], "--arxiv says nothing to a model that is there"),
    ):
        assert main(arguments) == 2
        assert message in capsys.readouterr().err


def test_what_was_taught_to_write_abstracts_serves_elsewhere(
    found: dict[str, Analysis], store: str, capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    model = found["abstracts-table8"].identity["models"][0]
    out = tmp_path / "out"
    assert main(["export", "--store", store, "--model", model, "--out", str(out)]) == 0
    words = transformers.AutoTokenizer.from_pretrained(out)
    n_vocab = len(words) - 2
    assert words.convert_tokens_to_ids([START_OF_TEXT, SEPARATOR]) == [n_vocab, n_vocab + 1]
    theirs = transformers.AutoModelForCausalLM.from_pretrained(out).eval()
    assert theirs.config.vocab_size == n_vocab + 2
    ids = words.encode(f"{START_OF_TEXT}A wet theory{SEPARATOR}We")
    assert {n_vocab, n_vocab + 1} < set(ids)
    kept = Store(store).local(Store(store).resolve(model, "adapt"))
    assert not (kept / "checkpoints").exists()  # of use to the training that was under way
    adapted = load_model(str(kept / "model")).eval()
    with torch.no_grad():
        torch.testing.assert_close(theirs(torch.tensor([ids])).logits, adapted(torch.tensor([ids])), atol=1e-5, rtol=0)
    greedy = theirs.generate(torch.tensor([words.encode("We")]), max_new_tokens=8, do_sample=False, pad_token_id=0)
    capsys.readouterr()
    options = ["--prompt", "We", "--max-tokens", "8", "--temperature", "0"]
    assert main(["generate", "--store", store, "--model", model[:12], *options]) == 0
    assert capsys.readouterr().out.rstrip("\n") == words.decode(greedy[0], skip_special_tokens=True).rstrip("\n")


def test_lines_of_any_text_are_read_back(tmp_path: Path) -> None:
    line = {"title": "a", "generated": "x\u2028y\u0085z", "ended": True, "real": None}
    found, text = Store(str(tmp_path)), 2 * (json.dumps(line, ensure_ascii=False) + "\n")
    made = found.build(Recipe("written", 1, {}, {}), lambda out: {"bytes": (out / FILE).write_text(text, "utf-8")})
    assert read_written(found, made.artifact) == [line, line]


def test_a_folder_of_hugging_faces_is_fine_tuned_as_it_is(
    papers: str, tmp_path: Path, world: tuple[str, str], prefect_server: Path
) -> None:
    tokenizer = ByteTokenizer.train([archive(3, 60)], 50)
    tokenizer.save(tmp_path / "gpt2")
    torch.manual_seed(1)
    config = transformers.GPT2Config(vocab_size=tokenizer.n_vocab, n_positions=32, n_embd=16, n_layer=2, n_head=2)
    transformers.GPT2LMHeadModel(config).save_pretrained(tmp_path / "gpt2")
    store = str(tmp_path / "store")
    found = run(papers, store, world, checkpoint=str(tmp_path / "gpt2"))
    assert not Store(store).list("pretrain")
    (imported,) = Store(store).list("imported")
    assert Store(store).manifest(imported)["config"]["model"]["n_layer"] == 2
    assert found["abstracts-table8"].rows[0][0].startswith("pre-trained")

    ByteTokenizer.train(["ab ab"], 1).save(tmp_path / "gpt2")
    with pytest.raises(InputError, match="found n_vocab = 307, expected its tokenizer's 258"):
        run(papers, store, world, checkpoint=str(tmp_path / "gpt2"))


def test_what_is_not_there_is_refused_before_any_work(papers: str, world: tuple[str, str], tmp_path: Path) -> None:
    for changes, message in expected(__file__, "REFUSED"):
        given = {name: str(tmp_path) if value == "{tmp}" else value for name, value in changes.items()}
        form = AbstractsParameters(preset="demo", **{"arxiv": papers, "store": str(tmp_path / "store"), **given})
        with pytest.raises(InputError, match=message):
            form.check()
    short = {"model": {"n_ctx": 32}, "adapt": {"block_size": 32}}  # star's blocks are of 96, and no business of adapt's
    form = AbstractsParameters(preset="demo", arxiv=papers, store=str(tmp_path / "store"), overrides=short)
    form.check()
    with pytest.raises(InputError, match=r"^star\.block_size = 96: expected 32 or less, the model's n_ctx"):
        AbstractsTablesParameters(**form.model_dump(exclude={"titles", "beside"})).check()
    for changes, message in expected(__file__, "REFUSED_FOR_TABLES"):
        given = {"arxiv": papers, "store": str(tmp_path / "store"), "only": ["sizes"], **changes}
        with pytest.raises(InputError, match=message):
            AbstractsTablesParameters(preset="demo", **given).check()
    assert not (tmp_path / "store").exists()


@pytest.mark.parametrize(("given", "message"), expected(__file__, "test_an_option_of_another_action_is_refused"))
def test_an_option_of_another_action_is_refused(
    given: list[str], message: str, capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    assert main(["abstracts", *given, "--store", str(tmp_path / "store")]) == 2
    assert message in capsys.readouterr().err


def test_models_of_several_sizes_share_one_table_8(
    papers: str, tmp_path: Path, world: tuple[str, str], found: dict[str, Analysis]
) -> None:
    store, there = str(tmp_path), Store(tmp_path)
    other = {"model": {**OVERRIDES["model"], "n_layer": 2}}
    run(papers, store, world, overrides=other)
    (wider,) = there.list("pretrain")
    made = run(papers, store, world, beside=[wider.digest])
    assert made.keys() - found.keys() == {"abstracts-table8-sizes"}
    table = made["abstracts-table8-sizes"]
    ours = [row for row in table.rows if not row[0].startswith("published")]
    assert [row[0] for row in table.rows if row not in ours] == [f"published {size}" for size in EVALUATION]
    assert len({row[0] for row in ours}) == 2
    assert ours[1][0].endswith(wider.digest[:6])
    assert ours[0][2] != ours[1][2]
    with pytest.raises(InputError, match="pretrain or imported 'abc'"):
        AbstractsParameters(preset="demo", arxiv=papers, store=store, beside=["abc"]).check()
