"""Completion of the command line, asked of the shells themselves: each reads what `gptmill completion` prints."""

from __future__ import annotations

import shutil
import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest

from flows.cli.main import main

ASKED = {
    "gptmill finet": ["finetune", "finetune-all"],
    "gptmill datasets ": ["get", "check"],
    "gptmill finetune rte --see": ["--seeds"],
    "gptmill pipeline --preset ": ["demo", "small", "long", "best", "paper"],
    "gptmill pipeline --family alb": ["albert"],
    "gptmill pipeline --tasks mr": ["mrpc"],
    "gptmill analysis ta": ["tables", "table5"],
    "gptmill finetune my-t": ["my-task.toml"],
    "gptmill finetune mn": ["mnli"],
    "gptmill zero-shot --tasks bl": ["blimp"],
    "gptmill pipeline --config my-r": ["my-rows.csv"],
    "gptmill datasets get al": ["all"],
}
"""What is typed -> what the shell offers."""
_BASH = """
source ./_gptmill
for line in "$@"; do
  read -ra COMP_WORDS <<< "$line"
  [[ $line == *" " ]] && COMP_WORDS+=("")
  COMP_CWORD=$((${#COMP_WORDS[@]} - 1))
  _shtab_gptmill
  echo "${COMPREPLY[@]}"
done
"""
_FISH = """
source ./_gptmill
for line in $argv
  echo (complete -C $line | string replace -r '\\t.*' '')
end
"""
_ZSH = """
zmodload zsh/zpty
zpty shell zsh -f -i
zpty -w shell 'fpath=($PWD $fpath); autoload -U compinit; compinit -u -D; unsetopt zle_bracketed_paste; PS1=ready:'
zpty -w shell 'unset zle_bracketed_paste; print rea""dy'
zpty -r shell said '*ready*'
while (( $# )); do
  zpty -w -n shell $1
  zpty -r shell said $2
  zpty -w -n shell $'\\C-u'
  shift 2
done
print complete
"""


@pytest.mark.parametrize("shell", ["bash", "fish", "zsh"])
def test_the_shell_offers_commands_options_and_names(
    shell: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    if not shutil.which(shell):
        pytest.skip(f"{shell} is not installed")
    assert main(["completion", shell]) == 0
    (tmp_path / "_gptmill").write_text(capsys.readouterr().out, encoding="utf-8")
    for file in ("my-task.toml", "my-rows.csv"):
        (tmp_path / file).touch()
    asked = {"bash": [_BASH, "bash", *ASKED], "fish": [_FISH, *ASKED], "zsh": [_ZSH, "zsh", *_seen_in_zsh()]}[shell]
    done = subprocess.run([shell, "-c", *asked], cwd=tmp_path, capture_output=True, text=True, timeout=60, check=True)
    if shell == "zsh":
        assert done.stdout == "complete\n"
    else:
        said = [sorted(line.split()) for line in done.stdout.splitlines()]
        assert dict(zip(ASKED, said, strict=True)) == {line: sorted(names) for line, names in ASKED.items()}


def _seen_in_zsh() -> Iterator[str]:
    """Keys to press and a pattern of what is to be seen then, in turn."""
    for line, names in ASKED.items():
        if len(names) == 1:  # the rest of it
            yield from (f"{line}\t", f"*{names[0].removeprefix(line.split(' ')[-1])}*")
        else:  # a list, at the second tab
            yield from (f"{line}\t\t", f"*{'*'.join(sorted(names))}*")
