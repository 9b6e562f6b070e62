"""The documentation: its site is built without a warning, every link leads somewhere, every command is one."""

from __future__ import annotations

import json
import re
import subprocess
import sys
import tomllib
from collections.abc import Iterator
from html.parser import HTMLParser
from pathlib import Path
from urllib.parse import unquote, urlsplit

import pytest

from flows.analyses import analyses
from flows.cli.main import parser
from gptcore.base.errors import InputError
from gptcore.families import FAMILIES, offered
from infra.docs.generated import commands, families, notebook
from tests.flows.world import small_world
from tests.infra.examples import (
    DOCS,
    ROOT,
    Block,
    Command,
    blocks_of,
    differs,
    is_tutorial,
    pages,
    programs,
    run,
    run_blocks,
)

_LINK = re.compile(r"\]\(([^)\s]+)\)")


class _Page(HTMLParser):
    """What a page of the site points to, and the places in it that can be pointed to."""

    def __init__(self, text: str) -> None:
        super().__init__()
        self.links: list[str] = []
        self.loads: list[str] = []
        self.places: set[str] = set()
        self.feed(text)

    def handle_starttag(self, tag: str, attributes: list[tuple[str, str | None]]) -> None:
        given = {name: value or "" for name, value in attributes}
        self.places |= {given[name] for name in ("id", "name") if name in given}
        if tag == "a" and "href" in given:
            self.links.append(given["href"])
        if tag in ("img", "script", "link", "iframe", "source"):
            self.loads += [given[name] for name in ("src", "href") if name in given]


@pytest.fixture(scope="module")
def site(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The site as `make docs` makes it, in a folder of its own."""
    folder = tmp_path_factory.mktemp("site")
    command = [sys.executable, "-m", "sphinx", "--fail-on-warning", "--keep-going", "--quiet", "-d", f"{folder}/trees"]
    done = subprocess.run(
        [*command, str(DOCS), f"{folder}/html"], cwd=ROOT, capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stderr
    return folder / "html"


@pytest.mark.slow
@pytest.mark.timeout(600)
def test_every_link_of_the_site_leads_somewhere_and_nothing_is_loaded_from_elsewhere(site: Path) -> None:
    found = {page: _Page(page.read_text(encoding="utf-8")) for page in site.rglob("*.html")}
    assert len(found) > 60
    wrong = [
        f"{page.relative_to(site)}: {link}"
        for page, content in found.items()
        for link in (*content.links, *content.loads)
        if not _leads_somewhere(page, link, found)
    ]
    assert wrong == []
    assert [load for content in found.values() for load in content.loads if urlsplit(load).netloc] == []


def _leads_somewhere(page: Path, link: str, found: dict[Path, _Page]) -> bool:
    address = urlsplit(link)
    if address.scheme:
        return address.scheme in ("https", "mailto", "data")
    target = (page.parent / unquote(address.path)).resolve() if address.path else page
    if not target.exists():
        return False
    return not address.fragment or target not in found or unquote(address.fragment) in found[target].places


@pytest.mark.slow
@pytest.mark.timeout(600)
@pytest.mark.parametrize("word", ["lm_coef", "resume", "s3"])
def test_the_search_finds(site: Path, word: str) -> None:
    index = (site / "searchindex.js").read_text(encoding="utf-8")
    terms = json.loads(index.removeprefix("Search.setIndex(").removesuffix(")"))
    stem = {"resume": "resum"}.get(word, word)
    assert stem in terms["terms"] or stem in terms["titleterms"]


@pytest.mark.slow
@pytest.mark.timeout(900)
@pytest.mark.parametrize("page", [page for page in pages() if run_blocks(page)], ids=lambda page: page.stem)
def test_the_commands_of_a_page_do_what_it_shows(page: Path, tmp_path: Path) -> None:
    books, datasets = small_world(tmp_path / "world")
    (tmp_path / "my-books").symlink_to(books)
    (tmp_path / "data").symlink_to(datasets)
    activate = tmp_path / ".venv" / "bin" / "activate"
    activate.parent.mkdir(parents=True)
    activate.touch()
    blocks = run_blocks(page)
    commands = [(block, command) for block in blocks for command in block.commands]
    outputs = run(blocks, tmp_path, timeout=800)
    assert len(outputs) == len(commands), outputs[-1]
    for (block, command), (printed, code) in zip(commands, outputs, strict=True):
        assert (code != 0) == (block.mark == "fails"), f"{block.where}: {command.text}: {code}\n{printed}"
        missing = differs(printed, command.printed)
        assert missing is None, f"{block.where}: {command.text}: not printed:\n{missing}\n\nprinted:\n{printed}"


@pytest.mark.parametrize("page", [page for page in pages() if blocks_of(page)], ids=lambda page: page.stem)
def test_every_command_of_a_page_is_one(page: Path) -> None:
    for block in blocks_of(page):
        assert re.fullmatch(r"|run|fails|not run: \S.*", block.mark), f"{block.where}: {block.mark}"
        for command in block.commands:
            assert command.text, f"{block.where}: what stands before the first command?"
            for arguments in programs(command.text):
                assert block.mark == "fails" or _is_command(arguments), f"{block.where}: {command.text}"


def _is_command(arguments: list[str]) -> bool:
    try:
        parser().parse_args(arguments)
    except SystemExit as ended:  # --help, or a usage error
        return ended.code == 0
    except InputError:
        return False
    return True


@pytest.mark.parametrize("page", pages(), ids=lambda page: f"{page.parent.name}/{page.stem}")
def test_what_a_page_names_of_the_code_is_there(page: Path) -> None:
    """All but what papers' rooms have, each of which may be taken out."""
    named = re.findall(r"`((?:gptcore|tasks|flows|infra|tests)/[\w./-]+)`", page.read_text(encoding="utf-8"))
    asked = (path for path in named if "NAME" not in path and not re.search("/papers/|/_build/", path))
    assert [path for path in asked if not (ROOT / path).exists()] == []


def test_the_first_page_and_each_tutorial_have_commands_that_are_run() -> None:
    tutorials = [page for page in pages() if is_tutorial(page)]
    assert len(tutorials) >= 4
    assert [page.name for page in tutorials if not run_blocks(page)] == []


@pytest.mark.slow
@pytest.mark.timeout(1200)
def test_the_notebook_of_the_tutorial_runs(tmp_path: Path) -> None:
    """Each cell as `%%bash` runs it: a shell of its own, which reads the cell from its standard input."""
    cells = notebook(DOCS / "tutorials" / "own-task.md")["cells"]
    codes = ["".join(cell["source"]).removeprefix("%%bash\n") for cell in cells if cell["cell_type"] == "code"]
    assert len(codes) > 8
    for number, code in enumerate(codes):
        (tmp_path / f"{number}.sh").write_text(code, encoding="utf-8")
    shells = tuple(Command(f"bash < {number}.sh", ()) for number, _ in enumerate(codes))
    block = Block(DOCS / "tutorials" / "own-task.md", 0, "", shells)
    printed = run([block], tmp_path, timeout=1100)
    assert [(codes[at], *each) for at, each in enumerate(printed) if each[1]] == []
    assert len(printed) == len(codes)
    assert any('"probabilities"' in text for text, _ in printed)


@pytest.mark.parametrize("page", pages(), ids=lambda page: f"{page.parent.name}/{page.stem}")
def test_settings_on_a_page_are_toml(page: Path) -> None:
    for block in re.findall(r"^```toml\n(.*?)^```$", page.read_text(encoding="utf-8"), re.MULTILINE | re.DOTALL):
        assert tomllib.loads(block), f"{page.name}:\n{block}"


def test_the_index_of_how_tos_leads_to_every_question() -> None:
    index = (DOCS / "howto" / "index.md").read_text(encoding="utf-8")
    asked = [
        f"- [{question}]({page.name}#{place})"
        for page in sorted((DOCS / "howto").glob("*.md"))
        if page.name != "index.md"
        for question, place in zip(_questions(page), list(_headings(page))[1:], strict=True)
    ]
    assert len(asked) > 40
    assert sorted(line for line in index.splitlines() if line.startswith("- ")) == sorted(asked)


def _questions(page: Path) -> list[str]:
    return re.findall(r"^## (.*)$", page.read_text(encoding="utf-8"), re.MULTILINE)


@pytest.mark.parametrize("name", ["README.md", "CONTRIBUTING.md", "CHANGELOG.md", "tests/benchmarks/PROFILES.md"])
def test_every_link_of_a_page_outside_of_the_site_leads_somewhere(name: str) -> None:
    page = ROOT / name
    links = [link for link in _LINK.findall(page.read_text(encoding="utf-8")) if not urlsplit(link).scheme]
    wrong = []
    for link in links:
        path, _, place = link.partition("#")
        target = page.parent / path if path else page
        if not target.exists() or (place and place not in _headings(target)):
            wrong.append(link)
    assert wrong == []


def _headings(page: Path) -> Iterator[str]:
    """The anchors of a Markdown page, as GitHub makes them."""
    for title in re.findall(r"^#+ (.*)$", page.read_text(encoding="utf-8"), re.MULTILINE):
        yield re.sub(r"[^\w\- ]", "", title.lower()).replace(" ", "-")


def test_the_reference_tells_of_every_analysis() -> None:
    text = "\n".join(commands())
    assert all(f"\n{name}\n  {each.text.split()[0]}" in text for name, each in analyses().items())


def test_the_reference_tells_of_every_family_that_can_be_trained() -> None:
    rows = [line.split(" | ") for line in families() if line.startswith("| `") and "`--family`" not in line]
    assert [row[0] for row in rows] == [f"| `{name}`" for name in offered()]
    assert [row[1] for row in rows] == [FAMILIES[name].title for name in offered()]


def test_the_first_page_is_short() -> None:
    lines = (ROOT / "README.md").read_text(encoding="utf-8").splitlines()
    assert len(lines) <= 150
    assert [line for line in lines if len(line) > 100] == []


def test_every_variable_of_ours_is_explained() -> None:
    files = subprocess.run(
        ["git", "grep", "-ohE", "GPTMILL_[A-Z_]+", "--", "flows", "tasks", "gptcore", "infra"],
        cwd=ROOT,
        capture_output=True,
        text=True,
        check=True,
    )
    page = (DOCS / "reference" / "environment.md").read_text(encoding="utf-8")
    assert sorted({name for name in files.stdout.split() if name not in page}) == []
