#!/usr/bin/env bash
# Patches, trains with and reverts several Megatron-LM checkouts, and prints a table (a minute each, on CPU):
#     bash scripts/megatron_versions.sh CHECKOUT... [--out FILE]
set -euo pipefail

root="$(cd "$(dirname "${BASH_SOURCE[0]}")/.." && pwd)"
python="$(env -u MEGATRON_PATH bash "$root/scripts/setup_env.sh")"
export PYTHONPATH="$root${PYTHONPATH:+:$PYTHONPATH}"
exec env -u MEGATRON_PATH "$python" -m tests.training.versions "$@"
