#!/usr/bin/env bash
# Install compress with its test tools into a virtual environment, and run every check: lint, format, types, tests.
#
#   scripts/check.sh                      # environment in .venv-check, made on the first call and kept
#   VENV=/tmp/v scripts/check.sh -k int8  # another environment; arguments go to pytest
#   WORKERS=0 scripts/check.sh           # tests in one process, as for a debugger; 2 where not given
#   PYTHON=python3.12 scripts/check.sh    # another interpreter for a new environment
set -euo pipefail

cd "$(dirname "${BASH_SOURCE[0]}")/.."
venv=${VENV:-.venv-check}
python=${PYTHON:-python3}

"$python" -c 'import sys; sys.exit(sys.version_info < (3, 10) and "compress needs Python 3.10 or newer, not " + sys.version.split()[0])'
[ -x "$venv/bin/python" ] || "$python" -m venv "$venv"
# setuptools would pack what an earlier build left here, modules that are gone since included.
rm -rf build/lib
echo "Installing into $venv (some minutes the first time) …"
"$venv/bin/python" -m pip install --quiet '.[test]'

"$venv/bin/ruff" check .
"$venv/bin/ruff" format --check .
"$venv/bin/mypy"
# Two processes: a test that runs a whole job keeps one CPU busy at most, and more would need more memory.
exec "$venv/bin/pytest" -n "${WORKERS:-2}" "$@"
