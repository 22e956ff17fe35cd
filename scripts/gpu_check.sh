#!/usr/bin/env bash
# All that only a GPU can show, in under eight minutes on one: kernels compiled and compared byte for byte with torch for
# simulated ranks, attention and strategies compared with fp64 formulas, conversions timed. Prints a table, and writes
# configs/results/<date>-gpu.json:
#     bash scripts/gpu_check.sh [arguments of `paradyse bench gpu`]
#
# PYTHON: an interpreter with a CUDA build of torch (default: .venv's, else python3). Megatron is not needed.
# PARADYSE_WHEELS: a folder of wheels to take what that Python lacks from, without a network.
# Exit status: 0 all holds, 1 something does not, 2 it cannot run here.
set -uo pipefail

root="$(cd "$(dirname "${BASH_SOURCE[0]}")/.." && pwd)"
limit_s=480

fail() {
    echo "gpu_check: $*" >&2
    exit 2
}

python="${PYTHON:-}"
[ -n "$python" ] || { [ -x "$root/.venv/bin/python" ] && python="$root/.venv/bin/python"; }
python="${python:-python3}"
command -v "$python" >/dev/null || fail "there is no $python; set PYTHON to one with a CUDA build of torch."

lacking() {
    "$python" - <<'PYTHON'
import importlib.util
names = {"torch": "torch", "numpy": "numpy", "yaml": "PyYAML", "rich": "rich", "cuda.bindings": "cuda-bindings",
         "cuda.core": "cuda-core"}
def has(name):
    try:
        return importlib.util.find_spec(name) is not None
    except ImportError:
        return False
print(*[package for name, package in names.items() if not has(name)])
PYTHON
}

export PYTHONPATH="$root${PYTHONPATH:+:$PYTHONPATH}"
missing="$(lacking)" || fail "$python does not run."
if [ -n "$missing" ] && [ -n "${PARADYSE_WHEELS:-}" ]; then
    carried="$(mktemp -d)"
    trap 'rm -rf "$carried"' EXIT
    # shellcheck disable=SC2086
    "$python" -m pip install --quiet --no-index --find-links "$PARADYSE_WHEELS" --target "$carried" $missing >&2 ||
        fail "$PARADYSE_WHEELS lacks wheels of $missing for $python, or of what they need."
    export PYTHONPATH="$PYTHONPATH:$carried"
    missing="$(lacking)"
fi
[ -z "$missing" ] || fail "$python lacks $missing; install them, or carry wheels and name their folder in PARADYSE_WHEELS."

cd "$root"
timeout "$limit_s" "$python" -W ignore -m paradyse_megatron bench gpu --out "configs/results/$(date +%F)-gpu.json" "$@"
status=$?
[ "$status" != 124 ] || echo "gpu_check: it was not done after $limit_s seconds." >&2
exit "$status"
