"""Generated data says so, wherever a copy of it lies."""

from __future__ import annotations

import fsspec

from gptcore.base.filesystems import MARK, is_synthetic, mark_synthetic
from gptcore.storyworld.write import generate


def test_a_generated_world_carries_the_mark_and_a_copy_keeps_it(tmp_path):
    generate(tmp_path / "world", 1, books=1, characters=500, pages=80)
    for folder in ("books", "datasets"):
        assert is_synthetic(str(tmp_path / "world" / folder))
        assert is_synthetic(f"{tmp_path}/world/{folder}/")
        assert "seed 1" in (tmp_path / "world" / folder / MARK).read_text(encoding="utf-8")
    assert is_synthetic(str(tmp_path / "world/books/*.txt"))
    assert is_synthetic(str(next((tmp_path / "world/books").glob("*.txt"))))
    memory = fsspec.filesystem("memory")
    memory.put(str(tmp_path / "world/books") + "/", "memory://copy/books/", recursive=True)
    assert is_synthetic("memory://copy/books")


def test_other_folders_do_not(tmp_path):
    (tmp_path / "books").mkdir()
    (tmp_path / "books/a.txt").write_text("a book", encoding="utf-8")
    assert not is_synthetic(str(tmp_path / "books"))
    assert not is_synthetic("memory://nowhere/books")
    mark_synthetic(tmp_path / "books", 3)
    assert is_synthetic(str(tmp_path / "books/a.txt"))
    assert not is_synthetic(str(tmp_path))
