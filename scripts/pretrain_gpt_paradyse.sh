#!/usr/bin/env bash
# Pre-trains a small GPT with a parallel strategy for each sequence and layer, through Megatron's own training loop:
#     bash scripts/pretrain_gpt_paradyse.sh [any Megatron arguments]
# Trains on the GPUs of this machine, else on its CPU, and needs nothing prepared.
#     PARADYSE_NPROC  ranks (default: the GPUs, or 2 on CPU)
#     PARADYSE_OUT    where everything is written (default: runs/demo)
#     DATA_PATH       prefix of a Megatron dataset (default: one made of the Python standard library's source files)
#     MEGATRON_PATH   a Megatron-LM checkout to use instead of the installed megatron-core; when it is patched
#                     (paradyse patch apply --megatron PATH) its own pretrain_gpt.py is what runs
set -euo pipefail

root="$(cd "$(dirname "${BASH_SOURCE[0]}")/.." && pwd)"
python="$(bash "$root/scripts/setup_env.sh")"
export PYTHONPATH="$root${PYTHONPATH:+:$PYTHONPATH}"
exec "$python" -m paradyse_megatron.integration.launch "$@"
