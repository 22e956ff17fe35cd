#!/usr/bin/env bash
# Makes an environment that can train and test, and prints the path of its Python (nothing else) on stdout:
#     PY=$(bash scripts/setup_env.sh)
#
# When the current python3 already has torch and Megatron (a container, a checkout on PYTHONPATH or in MEGATRON_PATH) that
# one is used, and gets this package and nothing else. Otherwise .venv is made from a Python >= 3.12.
# A run that finds nothing changed takes well under a second. Runs at the same time wait for each other; an interrupted
# one is repaired by the next.
set -euo pipefail

root="$(cd "$(dirname "${BASH_SOURCE[0]}")/.." && pwd)"
cd "$root"
PATH="${PATH//"$root/.venv/bin:"/}" # an activated .venv is ours, not an environment that was there before
export PIP_DISABLE_PIP_VERSION_CHECK=1
home="$root/.venv"
extras="megatron,report,profile,cuda,test"

say() { echo "setup_env: $*" >&2; }

fail() {
    say "$*"
    exit 2
}

identity() { "$1" -c 'import sys; print(sys.executable, sys.version)' 2>/dev/null; }

is_usable() { "$1" -c 'import sys, venv, ensurepip; sys.exit(sys.version_info < (3, 12))' >/dev/null 2>&1; }

# Everything that the result depends on; a run with the same answer has nothing to do.
fingerprint() {
    {
        cat setup.py pyproject.toml scripts/setup_env.sh
        find paradyse_megatron/csrc -type f -exec cksum {} + 2>/dev/null | sort
        identity python3
        echo "${MEGATRON_PATH:-} ${PYTHONPATH:-}"
    } | cksum || true
}

finish_if_current() {
    [ "$(cat "$home/paradyse-stamp" 2>/dev/null)" = "$1" ] || return 0
    "$(cat "$home/paradyse-python")" -c '' 2>/dev/null || return 0
    cat "$home/paradyse-python"
    exit 0
}

candidates() {
    printf '%s\n' python3 python3.12 python3.13 python3.14 "${PYENV_ROOT:-$HOME/.pyenv}"/versions/*/bin/python3
    command -v uv >/dev/null && uv python find '>=3.12' 2>/dev/null || true
}

find_python() {
    local candidate
    while read -r candidate; do
        if is_usable "$candidate"; then
            "$candidate" -c 'import sys; print(sys.executable)'
            return
        fi
    done < <(candidates)
    fail "no Python >= 3.12 with its venv module was found (looked at python3, python3.12 to python3.14, pyenv and uv);" \
        "install one, for example with 'pyenv install 3.12', 'uv python install 3.12' or your system's packages" \
        "(on Debian and Ubuntu python3.12 and python3.12-venv), and run this again."
}

# The quick look first: importing takes many seconds.
has_megatron() {
    local path="${MEGATRON_PATH:+$MEGATRON_PATH:}${PYTHONPATH:-}"
    PYTHONPATH="$path" python3 - 2>/dev/null <<'PYTHON' || return 1
import importlib.util, sys
found = all(importlib.util.find_spec(name) for name in ("torch", "megatron", "megatron.core", "megatron.training"))
sys.exit(not (found and sys.version_info >= (3, 12)))
PYTHON
    PYTHONPATH="$path" python3 -W ignore -c 'import torch, megatron.core, megatron.training' >&2 && return
    say "python3 has torch and Megatron, but they do not import (see above); making .venv instead."
    return 1
}

# Without build isolation nothing needs to be downloaded, if the environment can build at all.
install_self_only() {
    local python="$1" isolation="" missing
    "$python" -c 'import setuptools; assert int(setuptools.__version__.split(".")[0]) >= 77' 2>/dev/null &&
        isolation="--no-build-isolation"
    say "using $python, which has torch and Megatron already; installing only this package into it."
    "$python" -m pip install --quiet --no-deps $isolation --editable . >&2 ||
        fail "pip could not install this package into $python; activate an environment you may write to and run this again."
    missing="$("$python" -c 'import importlib.util as u; print(*[m for m in ("numpy", "rich", "yaml") if not u.find_spec(m)])')"
    [ -z "$missing" ] || say "$python lacks $missing; install them to use all of this package."
    echo "$python" >"$home/paradyse-python"
}

install_all() {
    local base="$1" python="$home/bin/python" marker="$home/paradyse-installing"
    if [ -e "$marker" ] || ! is_usable "$python"; then
        say "making .venv with $base ($("$base" -V))."
        "$base" -m venv --clear "$home" >&2
    fi
    touch "$marker"
    say "installing this package and what it needs into .venv (some minutes the first time)."
    "$python" -m pip install --quiet --editable ".[$extras]" >&2
    rm "$marker"
    echo "$python" >"$home/paradyse-python"
}

main() {
    local stamp base
    [ -z "${MEGATRON_PATH:-}" ] || [ -d "$MEGATRON_PATH/megatron/core" ] ||
        fail "MEGATRON_PATH is $MEGATRON_PATH, which is not a Megatron-LM checkout: it has no folder megatron/core."
    stamp="$(fingerprint)"
    finish_if_current "$stamp"
    base="$(find_python)"
    exec 9>"$root/.venv.lock"
    "$base" -c 'import fcntl; fcntl.flock(9, fcntl.LOCK_EX)' # the lock stays with this shell's descriptor
    finish_if_current "$stamp" # another run may have done it while this one waited
    mkdir -p "$home"
    rm -f "$home/paradyse-stamp"
    if has_megatron; then install_self_only "$(python3 -c 'import sys; print(sys.executable)')"; else install_all "$base"; fi
    echo "$stamp" >"$home/paradyse-stamp"
    cat "$home/paradyse-python"
}

main
