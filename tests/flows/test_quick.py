"""Options are said once, in forms' fields; what is wrong with a command is said before anything heavy is imported."""

from __future__ import annotations

import argparse
import inspect
import json
import os
import re
import shlex
import subprocess
import sys
from collections.abc import Iterable
from importlib import import_module
from operator import attrgetter
from pathlib import Path
from typing import get_type_hints

import pytest
from pydantic import BaseModel, ValidationError

from flows.analyses import analyses
from flows.cli.main import main, parser
from flows.cli.options import Command, CommandParser
from flows.cli.run import say_next
from flows.forms.fields import form_named, given_fields, options_of
from flows.forms.readers import toml_file
from flows.plugins import named
from gptcore.families import offered
from tasks.report.rows import Cell, Row
from tasks.report.suites import kept_leaderboard
from tasks.tracking.tracker import Tracker
from tests.expected import expected
from tests.flows.every_form import COMMANDS, FILLED_BY, FORMS

ONLY_IN_THE_BROWSER = {
    ("GenerateParameters", name)
    for name in ("max_tokens", "temperature", "top_k", "top_p", "repetition_penalty", "seed", "out")
}
OTHERS_DEFAULT = {("StudentsParameters", "preset"), ("DistillationParameters", "preset")}
"""Form and field whose option is another form's, too, with another default."""
NOTHING_SAID = {"shard", "ngrams", "pretrained", "overrides", "task", "sweep", "titles"}
"""Fields whose default no help text says: flags, what must be given, and settings, of which none is the default."""


def options(command: Command) -> dict[str, argparse.Action]:
    """The options of a command by their names, and its arguments by what stands for them."""
    made = CommandParser(command=command)
    made.complete()
    return {(action.option_strings or [action.metavar or action.dest])[-1]: action for action in made._actions}


def parsed(*arguments: str) -> argparse.Namespace:
    return parser().parse_args(arguments)


def test_every_form_is_filled_by_a_command() -> None:
    modules = {form.__module__ for form in FORMS.values()}
    there = {
        name: form
        for module in map(import_module, modules)
        for name, form in vars(module).items()
        if name.endswith("Parameters") and isinstance(form, type) and issubclass(form, BaseModel)
    }
    assert there.keys() - {"UpkeepParameters"} == FORMS.keys(), "each part of upkeep is a command of its own"
    assert len(there) > 15


@pytest.mark.parametrize("command", [command for command in COMMANDS if command.flow], ids=lambda command: command.name)
def test_the_flow_of_a_command_takes_its_form(command: Command) -> None:
    assert next(iter(get_type_hints(named(command.flow).fn).values())) is form_named(command.forms[0])


@pytest.mark.parametrize("command", [command for command in COMMANDS if not command.flow], ids=attrgetter("name"))
def test_the_function_of_a_command_takes_as_many_options_as_it_is_given(command: Command) -> None:
    path, takes = command.calls or f"flows.cli.commands:{command.name.replace('-', '_')}", command.takes
    instead = {
        each["name"].lstrip("-").replace("-", "_"): each["calls"] for each in command.arguments if "calls" in each
    }
    there = {action.dest for action in options(command).values()}
    inspect.signature(named(path)).bind(*(takes if takes is not None else ["options"]))
    assert {*(takes or ()), *instead} <= there | {"store"}
    for other in instead.values():
        inspect.signature(named(other)).bind("options")


@pytest.mark.parametrize("form", FORMS)
def test_every_field_has_one_option_or_is_for_the_browser_alone(form: str) -> None:
    there = options(FILLED_BY[form])
    made = {option.field: option.flag for option in options_of(FORMS[form])}
    without = {(form, name) for name in FORMS[form].model_fields if name not in made}
    assert without == {pair for pair in ONLY_IN_THE_BROWSER if pair[0] == form}
    assert len(set(made.values())) == len(made), "no two fields share an option"
    assert set(made.values()) <= set(there)


@pytest.mark.parametrize("form", FORMS)
def test_every_default_that_help_says_is_the_forms(form: str) -> None:
    there = options(FILLED_BY[form])
    for option in options_of(FORMS[form]):
        field = FORMS[form].model_fields[option.field]
        text = there[option.flag].help or ""
        if (form, option.field) in OTHERS_DEFAULT:
            assert "--teacher" in text, "the option's words are another form's, and tell of this one"
        elif option.field in NOTHING_SAID and option.said_default == "":
            assert field.is_required() or field.default in (True, False, {}), option.field
        elif field.default in ("", [], 0, -1):
            words = (field.description or "").rpartition("mpty: ")[2].removesuffix(".")
            assert words, (form, option.field)
            assert text.endswith(f" ({words})"), "the browser's words for it"
        else:
            said = re.search(r" \(([^()]*)\)$", text)
            assert said, (form, option.field)
            typed = ",".join(map(str, field.default)) if isinstance(field.default, list) else field.default
            assert said[1] == typed or float(said[1]) == field.default


@pytest.mark.parametrize("form", FORMS)
def test_a_command_that_is_told_nothing_fills_the_forms_defaults(form: str) -> None:
    needed = {"finetune": ["rte"], "analysis": ["tables"], "sweep": ["plan.toml"]}
    command = FILLED_BY[form].name
    found = given_fields(FORMS[form], parsed(command, *needed.get(command, [])), besides=["sweep"])
    fields = FORMS[form].model_fields
    assert {name: value for name, value in found.items() if value != fields[name].default} == (
        {"task": "rte"} if command == "finetune" else {}
    )


@pytest.mark.parametrize(("form", "arguments", "filled"), expected(__file__, "test_options_fill_their_fields"))
def test_options_fill_their_fields(form: str, arguments: list[str], filled: dict[str, object]) -> None:
    fields = FORMS[form].model_fields
    found = given_fields(FORMS[form], parsed(*arguments), besides=["sweep"])
    assert {name: value for name, value in found.items() if value != fields[name].default} == filled


def test_a_settings_file_fills_the_overrides(tmp_path: Path) -> None:
    file = tmp_path / "settings.toml"
    file.write_text("[finetune]\nlr = 1e-4\n", encoding="utf-8")
    for command, form in (("pipeline", "PipelineParameters"), ("abstracts", "AbstractsParameters")):
        assert given_fields(FORMS[form], parsed(command, "--config", str(file)))["overrides"] == toml_file(
            str(file), ""
        )
    assert parsed("abstracts").preset is None, "which generate reads as the paper's"


def test_family_offers_every_family_and_the_form_takes_no_other() -> None:
    assert ", ".join(offered()) in str(options(FILLED_BY["PretrainParameters"])["--family"].help)
    with pytest.raises(ValidationError):
        FORMS["PretrainParameters"].model_validate({"family": "none"})


def test_the_program_imports_no_form_before_a_command_is_chosen() -> None:
    code = (
        "import sys; from flows.cli.main import parser; p = parser(); p.format_help(); print('fsspec' in sys.modules); "
        "p.parse_args(['leaderboard']); print('pydantic' in sys.modules, 'flows.forms.parameters' in sys.modules); "
        "p.parse_args(['pretrain']); print('pydantic' in sys.modules); "
        "import flows.pipeline; print('torch' in sys.modules, 'scipy' in sys.modules)"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.split() == ["False", "False", "False", "True", "False", "False"]


# --- whoever only looks starts no server


HEAVY = ("prefect", "torch", "mlflow", "pandas", "sklearn", "matplotlib", "spacy", "transformers")

_SCRIPT = """
import contextlib, io, json, sys
from flows.cli.main import main

answers = []
for arguments in json.load(sys.stdin):
    said = io.StringIO()
    with contextlib.redirect_stderr(said), contextlib.redirect_stdout(said):
        try:
            code = main(arguments)
        except SystemExit as stopped:
            code = stopped.code
    answers.append([code, said.getvalue(), [name for name in json.loads(sys.argv[1]) if name in sys.modules]])
print(json.dumps(answers))
"""


def answers(commands: list[list[str]], home: Path) -> list[tuple[int, str, list[str]]]:
    """Exit code, what was printed and heavy modules imported so far, for each command in turn, in a fresh process."""
    done = subprocess.run(
        [sys.executable, "-c", _SCRIPT, json.dumps(HEAVY)],
        input=json.dumps(commands),
        capture_output=True,
        text=True,
        check=True,
        env={**os.environ, "GPTMILL_HOME": str(home), "PYTHONPATH": str(Path(__file__).parents[2])},
        cwd=home.parent,
    )
    return [(code, said, heavy) for code, said, heavy in json.loads(done.stdout)]


BAD = expected(__file__, "BAD")


def test_bad_usage_of_any_command_is_one_line_said_at_once(tmp_path: Path) -> None:
    for folder in ("empty", "books", "data/RTE"):
        (tmp_path / folder).mkdir(parents=True)
    for name, text in {
        "books/a.txt": "A book.\n" * 50,
        "file": "= no toml",
        "unknown.toml": "[finetune]\nrate = 1\n",
        "misspelt.toml": "[finetune]\nbatchsize = 1\n",
        "type.toml": '[finetune]\nepochs = "three"\n',
        "section.toml": "[fine]\ntune = 1\n",
    }.items():
        (tmp_path / name).write_text(text, encoding="utf-8")
    before = sorted(path for path in tmp_path.rglob("*") if path.is_file())
    commands = [[part.format(tmp=tmp_path) for part in arguments] for arguments, _ in BAD.values()]
    for (case, (_, words)), (code, said, heavy) in zip(BAD.items(), answers(commands, tmp_path / "home"), strict=True):
        assert code == 2, (case, said)
        (line,) = said.splitlines()
        assert line.startswith("gptmill: error: "), case
        assert words.format(tmp=tmp_path) in line, case
        assert "Traceback" not in said, case
        assert "overrides" not in line, "a user of the command line knows of no such thing"
        assert heavy == [], case
    left = [path for path in tmp_path.rglob("*") if path.is_file() and not {".locks", "home"} & {*path.parts}]
    assert sorted(left) == before, "nothing is half-written"
    assert not (tmp_path / "store").exists()


def test_help_imports_nothing_and_fits_80_columns(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("COLUMNS", "80")
    names = ["", *(f"{command.name} {below}" for command in COMMANDS for below in ("", *_names(command.below)))]
    for name, (code, said, heavy) in zip(
        names, answers([[*name.split(), "--help"] for name in names], tmp_path), strict=True
    ):
        assert (code, heavy) == (0, []), name
        assert f"gptmill {name}" in said
        assert [line for line in said.splitlines() if len(line) > 80] == [], name
        if not name:
            listed = [line for line in said.splitlines() if re.match(r"  [a-z]", line)]
            assert [line.split()[0] for line in listed] == _names(COMMANDS), "a line each"
            places = [said.index(f"\n{group}:\n") for group in dict.fromkeys(each.group for each in COMMANDS)]
            assert places == sorted(places)


def _names(commands: Iterable[Command]) -> list[str]:
    return [command.name for command in commands]


@pytest.mark.parametrize(
    "command", [*COMMANDS, *(each for command in COMMANDS for each in command.below)], ids=attrgetter("name")
)
def test_every_option_has_a_text_and_every_line_of_an_example_is_kept(command: Command) -> None:
    made = CommandParser(command=command)
    made.complete()
    for action in made._actions:
        words = re.sub(r"\(.*?\)", "", action.help or "").split()
        assert len(words) > 1 or action.choices, (command.name, action.dest)
    for text in (command.description, command.epilog or ""):
        assert text.strip() in made.format_help()


def test_every_analysis_says_what_it_answers_takes_and_needs() -> None:
    made = CommandParser(command=next(command for command in COMMANDS if command.name == "analysis"))
    made.complete()
    said = " ".join(made.format_help().split())
    for name, analysis in analyses().items():
        assert min(map(len, (analysis.text, analysis.takes, analysis.needs))) > 8, name
        assert f"{name} {analysis.text} takes: {analysis.takes} needs: {analysis.needs}" in said


def test_what_may_follow_a_command_is_typed_as_it_is_told(capsys: pytest.CaptureFixture[str]) -> None:
    commands = [each for command in COMMANDS for each in (command, *command.below)]
    given = {"task": "./my-task.toml", "model": "64cbf7", "to": "my data"}
    for store, told in (("runs/demo", ""), (None, ""), ("my store", "told"), (f"s3://books/{'a' * 30}/a b", "told")):
        for command in commands:
            say_next(argparse.Namespace(store=store, next=command.next, **given))
            printed = capsys.readouterr().err.removeprefix("\n")
            assert max(map(len, printed.splitlines()), default=0) <= 80
            said = printed.removeprefix("next: ").replace(" \\\n", " ").replace("\n          ", "  ").splitlines()
            assert len(said) == len(command.next) <= 4
            for line, (typed, text) in zip(said, command.next, strict=True):
                words = shlex.split(line.strip().removesuffix(text))
                assert words[0] == "gptmill"
                options = parser().parse_args(words[1:])
                assert ("{store}" not in typed) or options.store == (store if told else None)
    (finetune,) = (each for each in commands if each.name == "finetune")
    say_next(argparse.Namespace(store="s", next=finetune.next, task="sst2"))
    assert capsys.readouterr().err.startswith(
        "\nnext: gptmill predict sst2 FILE.csv --store s  answer rows of your own\n"
    )


def test_help_and_version_are_understood_as_people_type_them(capsys: pytest.CaptureFixture[str]) -> None:
    said = []
    for words in (["help"], ["--help"], ["help", "datasets", "check"], ["datasets", "check", "--help"], ["version"]):
        with pytest.raises(SystemExit) as ended:
            main(words)
        assert ended.value.code == 0
        said.append(capsys.readouterr().out)
    assert said[0] == said[1]
    assert said[2] == said[3]
    assert said[4].startswith("gptmill ")


@pytest.mark.parametrize("served", [False, True], ids=["a file", "the stack's file"])
def test_a_leaderboard_that_was_read_before_needs_no_mlflow(
    served: bool, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("GPTMILL_HOME", str(tmp_path))
    monkeypatch.delenv("MLFLOW_TRACKING_URI", raising=False)
    if served:
        monkeypatch.setenv("MLFLOW_TRACKING_URI", "http://127.0.0.1:1")
        monkeypatch.setenv("GPTMILL_MLFLOW_FILE", f"http://127.0.0.1:1 {tmp_path / 'mlflow.db'}")
    (tmp_path / "mlflow.db").write_bytes(b"the database as it was")
    row = Row("mine 123456", "ours", "dev", {"rte": 61.25}, {"rte": Cell("dev", 1, 61.25, 61.25, 2.0)}, suite="1")
    monkeypatch.setattr("tasks.report.suites.read_rows", lambda _: [row])
    monkeypatch.setattr("tasks.report.suites.leaderboard_line", lambda _: "MLflow: its page")
    kept_leaderboard(Tracker())
    ((code, said, heavy),) = answers([["leaderboard"]], tmp_path)
    assert (code, heavy) == (0, [])
    assert "61.2±2.0" in said
    assert "MLflow: its page" in said


@pytest.mark.parametrize("text", ["", "{}", "[1]", '{"prefect_url": "http://127.0.0.1:1"}'])
def test_a_broken_record_of_the_stack_is_named(text: str, tmp_path: Path) -> None:
    (tmp_path / "stack.json").write_text(text, encoding="utf-8")
    ((code, said, _),) = answers([["status"]], tmp_path)
    assert code == 2
    assert "stack.json" in said
    assert said.count("\n") == 1
