#!/usr/bin/env bash
# Sets up the environment, then runs the linter, the type checker, the layering check and the tests:
#     bash scripts/test.sh [pytest arguments]         (default: all tests, two files at a time)
set -uo pipefail

root="$(cd "$(dirname "${BASH_SOURCE[0]}")/.." && pwd)"
cd "$root"
failed=()

# step NAME COMMAND...: runs it, says how long it took, remembers a failure.
step() {
    local name="$1" start=$SECONDS
    shift
    "$@" || failed+=("$name")
    echo "test: $name took $((SECONDS - start)) s" >&2
}

# A module that the environment lacks (a container that was used as it is) is named, and counts as a failure.
module() {
    "$python" -c "import importlib.util, sys; sys.exit(importlib.util.find_spec('$1') is None)" ||
        { echo "test: $python lacks $1; install the packages of the extra 'test' in pyproject.toml." >&2; return 1; }
}

start=$SECONDS
python="$(bash scripts/setup_env.sh)" || exit
echo "test: set-up took $((SECONDS - start)) s; using $python" >&2

ruff() { module ruff && "$python" -m ruff check .; }
types() { module mypy && "$python" -m mypy; }
layering() { module importlinter && "$python" -c 'import sys; from importlinter.cli import lint_imports_command as c; sys.exit(c())'; }
# Many tests wait for ranks that wait for each other, so two files at a time take little more than half as long.
tests() { module pytest && module xdist && "$python" -m pytest "$@"; }
[ $# -gt 0 ] || set -- -n 2 --dist loadfile tests

step ruff ruff
step mypy types
step layering layering
step pytest tests "$@"

if [ ${#failed[@]} -gt 0 ]; then
    echo "test: failed: ${failed[*]}" >&2
    exit 1
fi
echo "test: all passed in $((SECONDS - start)) s" >&2
