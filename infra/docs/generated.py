"""The pages of the reference that are made of definitions: commands, settings, families, tasks, Python; and a notebook.

A fact stands once, where the program reads it: an option in its form's field, a setting in its dataclass, a family in
its file, a task in its registry's entry, a function's use in its docstring. Here they become Markdown, in
`reference/generated/`, which is not kept in version control. There, too, a tutorial becomes a notebook, whose cells are
the page's own commands.
"""

from __future__ import annotations

import argparse
import dataclasses
import inspect
import json
import re
from collections.abc import Iterable, Iterator, Mapping
from importlib import import_module
from itertools import groupby
from pathlib import Path
from typing import Any

from sphinx.pycode import ModuleAnalyzer

from flows.cli.main import parser
from flows.cli.options import Command, CommandParser, add_options, read_commands
from gptcore.config import PRESETS
from gptcore.families import FAMILIES, Family, offered
from gptcore.nlu.registry import BEYOND, REGISTRY, TaskSpec

_HEAD = "<!-- Made by infra/docs/generated.py; do not edit. -->\n"


def write_pages(source: Path | str) -> None:
    """Write each page that has changed below ``source``, the folder of the pages, and delete those of gone rooms."""
    folder = Path(source) / "reference" / "generated"
    folder.mkdir(parents=True, exist_ok=True)
    made = {"commands": commands(), "settings": settings(), "families": families(), "tasks": tasks()}
    pages = {room: python(room, modules) for room, modules in rooms().items()} | made
    for page in folder.glob("*.md"):
        if page.stem not in pages:
            page.unlink()
    for name, lines in pages.items():
        _write(folder / f"{name}.md", _HEAD + "\n".join(lines) + "\n")
    tutorial = Path(source) / "tutorials" / "own-task.md"
    _write(folder / "own-task.ipynb", json.dumps(notebook(tutorial), indent=1, ensure_ascii=False) + "\n")


def _write(page: Path, text: str) -> None:
    if not page.exists() or page.read_text(encoding="utf-8") != text:
        page.write_text(text, encoding="utf-8")


def table(head: Iterable[str], rows: Iterable[Iterable[str]]) -> Iterator[str]:
    """A Markdown table; what separates its cells is escaped in them."""
    names = list(head)
    yield "| " + " | ".join(names) + " |"
    yield "|" + "---|" * len(names)
    for row in rows:
        yield "| " + " | ".join(" ".join(cell.split()).replace("|", "\\|") for cell in row) + " |"
    yield ""


# --- commands


def commands() -> Iterator[str]:
    """Every command with its options, as `--help` has them."""
    yield "# Commands\n"
    yield (
        "What `gptmill COMMAND --help` prints, of every command. Exit codes: 0 done, 1 failed, 2 bad usage or input, "
        "130 Ctrl-C, 143 SIGTERM.\n"
    )
    yield from _options(parser())
    for group, inside in groupby(read_commands(), lambda command: command.group):
        yield f"## {group}\n"
        for command in inside:
            yield from _command(command, "gptmill", "###")


def _command(command: Command, above: str, level: str) -> Iterator[str]:
    name = f"{above} {command.name}"
    made = CommandParser(command=command, prog=name)
    add_options(made, command)
    yield f"{level} {name}\n"
    yield f"{_sentence(command.text)}\n"
    if made.description != command.text:
        yield from _literal(made.description or "")
    yield from _options(made)
    if made.epilog:
        yield from _literal(made.epilog)
    for below in command.below:
        yield from _command(below, name, f"{level}#")


def _options(made: argparse.ArgumentParser) -> Iterator[str]:
    """The options of a parser as a table."""
    formatter = made._get_formatter()
    rows = []
    for action in made._actions:
        if isinstance(action, argparse._SubParsersAction | argparse._HelpAction):
            continue
        value = "" if action.nargs == 0 else formatter._format_args(action, action.dest.upper())
        typed = ", ".join(f"`{option}{f' {value}' if value else ''}`" for option in action.option_strings)
        rows.append((typed or f"`{value}`", _text(formatter._expand_help(action) if action.help else "")))
    if rows:
        yield from table(("option", "what it says (and its default)"), rows)


def _literal(text: str) -> Iterator[str]:
    yield "```text"
    yield text.strip("\n")
    yield "```\n"


# --- settings


def settings() -> Iterator[str]:
    """Every section of a `--config` file, with what each setting is in each preset."""
    presets = {name: made() for name, made in PRESETS.items()}
    yield "# Settings\n"
    yield (
        "What a file for `--config` may hold: `[section]`, then `name = value`. The default is the preset `paper`'s; "
        "beside it stand the other presets that differ from it.\n"
    )
    for section in ("corpus", "tokenizer", "shards", "model", "lstm", "pretrain", "distil", "finetune"):
        values = {name: getattr(preset, section) for name, preset in presets.items()}
        kind = type(values["paper"])
        yield f"## [{section}]\n"
        yield f"{_text((inspect.getdoc(kind) or '').partition(chr(10) * 2)[0])}\n"
        said = attribute_texts(kind)
        rows: list[tuple[str, ...]] = []
        for field in dataclasses.fields(kind):
            if field.metadata.get("derived"):
                continue
            paper = getattr(values["paper"], field.name)
            each = {name: getattr(settings, field.name) for name, settings in values.items()}
            others = ", ".join(f"{name} `{_toml(value)}`" for name, value in each.items() if value != paper)
            rows.append((f"`{field.name}`", f"`{_toml(paper)}`", others, _text(said.get(field.name, ""))))
        yield from table(("setting", "default", "in presets", "what it says"), rows)
    yield "## Single values, and [tasks.NAME]\n"
    said = attribute_texts(type(presets["paper"]))
    rows = [
        (f"`{name}`", *(f"`{_toml(getattr(p, name))}`" for p in presets.values()), _text(said[name]))
        for name in ("scratch", "seeds")
    ]
    yield from table(("setting", *presets, "what it says"), rows)
    yield "`[tasks.rte]` holds settings of `[finetune]` for one task. Those of the presets:\n"
    own = [(f"`{task}`", *(_assignments(p.tasks.get(task, {})) for p in presets.values())) for task in REGISTRY]
    yield from table(("task", *presets), own)


def attribute_texts(kind: type) -> Mapping[str, str]:
    """What stands below each attribute of a class, or of those that it is made of."""
    said: dict[str, str] = {}
    for each in reversed(inspect.getmro(kind)):
        if each.__module__.startswith("gptcore"):
            texts = ModuleAnalyzer.for_module(each.__module__).find_attr_docs()
            said |= {name: " ".join(lines) for (owner, name), lines in texts.items() if owner == each.__qualname__}
    return said


def _toml(value: Any) -> str:
    if value is None:
        return "none"
    if isinstance(value, bool | str):
        return json.dumps(value)
    if isinstance(value, float):
        return f"{value:g}"
    return f"{value:_}" if isinstance(value, int) else str(value)


def _assignments(values: Mapping[str, Any]) -> str:
    return ", ".join(f"`{name} = {_toml(value)}`" for name, value in values.items())


# --- families


def families() -> Iterator[str]:
    """Every family that can be pre-trained or fine-tuned here, from its file."""
    yield "# Families\n"
    yield "What `--family` takes, the first one by default, and what pre-training learns.\n"
    known = [FAMILIES[name] for name in offered()]
    yield from table(("`--family`", "family", "text", "tokenizer", "network", "learns"), map(_pretrained, known))
    yield "\n`model_type` is Hugging Face's name of the folders that are read, if any are; `shape` takes the sizes.\n"
    tuned = [family for family in FAMILIES.values() if family.layout or family in known]
    yield from table(("family", "fine-tuning", "`model_type`", "sizes"), map(_fine_tuned, tuned))


def _pretrained(family: Family) -> tuple[str, ...]:
    text = f"{family.reads}, {'as it is' if family.raw_text else 'cleaned'}{', in sentences' * family.sentences}"
    kinds = (family.part("tokenizer").kind, family.network_title, family.learns)
    return f"`{family.name}`", family.title, text, *kinds


def _fine_tuned(family: Family) -> tuple[str, ...]:
    layout = family.part("layout") if family.layout else None
    kinds = (layout.model_type, *layout.aliases) if layout else ()
    folders = ", ".join(f"`{kind}`" for kind in kinds if kind) or ("any other" if layout else "")
    imported = {} if family.objective else family.presets.get("imported", {})  # which others are alone
    settings = {**family.settings.get("finetune", {}), **imported.get("finetune", {})}
    tuned = _assignments(settings) or "the next token beside the task"
    return family.title, tuned, folders, ", ".join(family.shapes)


# --- tasks


def tasks() -> Iterator[str]:
    """Every task of the registry."""
    yield "# Tasks\n"
    yield "The paper's twelve, which make the leaderboard's average, and those beyond them.\n"
    for title, entries in (("The paper's twelve", REGISTRY), ("Beyond the paper", BEYOND)):
        yield f"## {title}\n"
        rows = (_task(name, spec) for name, spec in entries.items())
        yield from table(("task", "folder", "form", "texts", "answer", "scored by", "splits"), rows)


def _task(name: str, spec: TaskSpec) -> tuple[str, ...]:
    texts = ", ".join(
        f"`{each if isinstance(each, str) else ' + '.join(each)}`" for each in (*spec.fields, *spec.choices)
    )
    labels = ", ".join(spec.labels[:6]) + (", ..." if len(spec.labels) > 6 else "")
    answer = f"{spec.score_range[0]:g} to {spec.score_range[1]:g}" if spec.score_range else labels
    splits = ", ".join(f"{split} {spec.published_rows(split):,}" for split in spec.splits)
    return f"`{name}`", f"`{spec.folder}`", spec.form, texts, answer, ", ".join(spec.metrics), splits


# --- a notebook

_BLOCK = re.compile(r"^```console\n(.*?)^```$", re.MULTILINE | re.DOTALL)
_ACTIVATE = ". .venv/bin/activate"  # who has opened a notebook is in an environment


def notebook(page: Path) -> dict[str, Any]:
    """A tutorial as a Jupyter notebook (nbformat 4.5): its text as it is, each block of commands a cell of bash."""
    cells: list[dict[str, Any]] = []
    for number, part in enumerate(_BLOCK.split(page.read_text(encoding="utf-8"))):
        lines = [line for line in part.strip().splitlines() if "{download}" not in line]  # of this notebook
        if number % 2:  # what stood between the fences
            typed = [line[2:] for line in lines if line.startswith(("$ ", "> "))]
            lines = ["%%bash", *(line for line in typed if line != _ACTIVATE)]
        kind: dict[str, Any] = {"cell_type": "markdown"}
        if number % 2:
            kind = {"cell_type": "code", "execution_count": None, "outputs": []}
        source = "\n".join(lines).splitlines(keepends=True)
        cells += [{**kind, "id": f"cell-{number}", "metadata": {}, "source": source}] if len(source) else []
    kernel = {"display_name": "Python 3", "language": "python", "name": "python3"}
    return {"cells": cells, "metadata": {"kernelspec": kernel}, "nbformat": 4, "nbformat_minor": 5}


# --- Python


def rooms() -> Mapping[str, list[str]]:
    """The packages that people import, each with its modules."""
    modules: dict[str, list[str]] = {}
    for package in ("gptcore", "tasks"):
        top = Path(import_module(package).__path__[0])
        for file in sorted(top.rglob("*.py")):
            module = ".".join((package, *file.relative_to(top).with_suffix("").parts)).removesuffix(".__init__")
            modules.setdefault(".".join(module.split(".")[:2]), []).append(module)
    return modules


def python(room: str, modules: Iterable[str]) -> Iterator[str]:
    """A package's modules, from their docstrings."""
    yield f"# {room}\n"
    for module in modules:
        if module != room:
            yield f"## {module}\n"
        yield f"```{{eval-rst}}\n.. automodule:: {module}\n   :members:\n   :ignore-module-all:\n```\n"


def _text(text: str) -> str:
    """A docstring's or a help text's words as Markdown: no roles of Sphinx, double backticks as single ones."""
    for role in (":mod:", ":func:", ":class:", ":attr:", ":data:"):
        text = text.replace(f"{role}`", "`")
    return text.replace("``", "`").replace("<", "&lt;").replace("*", "\\*")


def _sentence(text: str) -> str:
    text = _text(text)
    return f"{text[:1].upper()}{text[1:]}{'' if text.endswith('.') else '.'}"
