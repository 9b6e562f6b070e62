"""Completion of the command line, asked of the shells themselves: each reads what `gptmill completion` prints."""

from __future__ import annotations

import shutil
import subprocess
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
source ./script
for line in "$@"; do
  read -ra COMP_WORDS <<< "$line"
  [[ $line == *" " ]] && COMP_WORDS+=("")
  COMP_CWORD=$((${#COMP_WORDS[@]} - 1))
  _shtab_gptmill
  echo "${COMPREPLY[@]}"
done
"""
_FISH = """
source ./script
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


def script(shell: str, folder: Path, capsys: pytest.CaptureFixture[str], name: str = "script") -> None:
    assert main(["completion", shell]) == 0
    (folder / name).write_text(capsys.readouterr().out, encoding="utf-8")
    for file in ("my-task.toml", "my-rows.csv"):
        (folder / file).touch()


def ask(folder: Path, *command: str) -> list[str]:
    done = subprocess.run(command, cwd=folder, capture_output=True, text=True, timeout=60, check=True)
    return done.stdout.splitlines()


@pytest.mark.parametrize("shell", ["bash", "fish"])
def test_the_shell_offers_commands_options_and_names(
    shell: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    if not shutil.which(shell):
        pytest.skip(f"{shell} is not installed")
    script(shell, tmp_path, capsys)
    program = [_BASH, "bash"] if shell == "bash" else [_FISH]
    said = [sorted(line.split()) for line in ask(tmp_path, shell, "-c", *program, *ASKED)]
    assert dict(zip(ASKED, said, strict=True)) == {line: sorted(names) for line, names in ASKED.items()}


def test_zsh_offers_them_too(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    if not shutil.which("zsh"):
        pytest.skip("zsh is not installed")
    script("zsh", tmp_path, capsys, "_gptmill")
    pairs: list[str] = []
    for line, names in ASKED.items():
        rest = names[0].removeprefix(
            line.split(" ")[-1]
        )  # of the only one; of several there is a list at the second tab
        pairs += [f"{line}\t", f"*{rest}*"] if len(names) == 1 else [f"{line}\t\t", f"*{'*'.join(sorted(names))}*"]
    assert ask(tmp_path, "zsh", "-f", "-c", _ZSH, "zsh", *pairs) == ["complete"]
