"""``python -m gptcore.papers.storyworld OUT --seed N``: write a synthetic world."""

from __future__ import annotations

import argparse
import sys
from pathlib import Path

from gptcore.base.errors import InputError
from gptcore.papers.storyworld.web import PAGES
from gptcore.papers.storyworld.write import BOOKS, CHARACTERS, generate


def main(arguments: list[str] | None = None) -> int:
    """Command line; returns the exit code (0 done, 2 bad input)."""
    parser = argparse.ArgumentParser(prog="python -m gptcore.papers.storyworld", description=__doc__)
    parser.add_argument("out", type=Path, help="new or empty folder for books/, datasets/, arxiv/ and web/")
    parser.add_argument("--seed", type=int, default=1, help="names every random draw (default: %(default)s)")
    parser.add_argument("--books", type=int, default=BOOKS, help="number of books (default: %(default)s)")
    parser.add_argument("--characters", type=int, default=CHARACTERS, help="least length of a book (%(default)s)")
    parser.add_argument("--pages", type=int, default=PAGES, help="number of the web's pages (%(default)s)")
    given = parser.parse_args(arguments)
    try:
        counts = generate(given.out, given.seed, given.books, given.characters, given.pages)
    except InputError as error:
        print(error, file=sys.stderr)
        return 2
    print(f"synthetic world in {given.out}: " + ", ".join(f"{n} {what}" for what, n in counts.items()))
    return 0


if __name__ == "__main__":
    sys.exit(main())
