#!/usr/bin/env bash
# Pre-trains a small GPT with a parallel strategy for each sequence and layer, through Megatron's own training loop:
#     bash scripts/pretrain_gpt_paradyse.sh [any Megatron arguments]
# Trains on the GPUs of this machine, else on its CPU, and needs nothing prepared. With --dry-run (or PARADYSE_DRY_RUN=1)
# it shows the command, the plans by length and whether the longest sequence fits, and starts nothing.
#     PARADYSE_NPROC    ranks of a node (default: the GPUs, or 2 on CPU)
#     PARADYSE_OUT      where everything is written (default: runs/demo)
#     DATA_PATH         prefix of a Megatron dataset (default: one made of the Python standard library's source files)
#     MEGATRON_PATH     a Megatron-LM checkout to use instead of the installed megatron-core; when it is patched
#                       (paradyse patch apply --megatron PATH) its own pretrain_gpt.py is what runs
#     PARADYSE_CLUSTER  machine to plan for without measured costs, as in configs/clusters (default: nearest to this one)
#     PARADYSE_PYTHON   a Python that has everything, used as it is (default: found or made by scripts/setup_env.sh)
# Several nodes, one start of this script on each: under SLURM by srun --ntasks-per-node=1, elsewhere by NNODES, NODE_RANK,
# MASTER_ADDR and MASTER_PORT. Started by torchrun, it is one of torchrun's ranks.
set -euo pipefail

root="$(cd "$(dirname "${BASH_SOURCE[0]}")/.." && pwd)"
python="${PARADYSE_PYTHON:-$(bash "$root/scripts/setup_env.sh")}"
export PYTHONPATH="$root${PYTHONPATH:+:$PYTHONPATH}"
exec "$python" -m paradyse_megatron.integration.launch "$@"
