#!/usr/bin/env bash
# Does an installed gptmill work, away from its checkout? Builds a wheel, installs it with the tested pins into an empty
# environment, and runs a pipeline of a minute from another folder. Nothing of the checkout is on that path: a module or
# a data file that the wheel lacks fails here.
set -euo pipefail
checkout=$(cd "$(dirname "$0")/.." && pwd)
place=$(mktemp -d)
trap 'rm -rf "$place"' EXIT

"${PYTHON:-python3}" -m venv "$place/venv"
pip=("$place/venv/bin/python" -m pip --quiet --disable-pip-version-check)
git -C "$checkout" archive HEAD --prefix source/ | tar -x -C "$place"  # what is committed, and no leftovers of a build
"${pip[@]}" wheel --no-deps --wheel-dir "$place/wheels" "$place/source"
rm -r "$place/source"
echo "Installing $(basename "$place"/wheels/*.whl) into an empty environment (a few minutes)"
"${pip[@]}" install --constraint "$checkout/constraints.txt" "$place"/wheels/*.whl
cp "$checkout/infra/short-demo.toml" "$place"
mkdir "$place/elsewhere" && cd "$place/elsewhere"
unset PYTHONPATH
version=$("$place/venv/bin/gptmill" --version)
[[ -e $place/wheels/gptmill-${version#gptmill }-py3-none-any.whl ]] || { echo "the wheel is not of $version" >&2; exit 1; }
time "$place/venv/bin/gptmill" pipeline --preset demo --config ../short-demo.toml --tasks rte,cola
"$place/venv/bin/gptmill" leaderboard --format csv > board.csv
grep -q '^pre-trained' board.csv || { echo "no row of ours on the leaderboard" >&2; exit 1; }
