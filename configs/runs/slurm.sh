#!/usr/bin/env bash
#SBATCH --job-name=paradyse
#SBATCH --nodes=2
#SBATCH --ntasks-per-node=1
#SBATCH --gpus-per-node=8
#SBATCH --exclusive
# One task a node; each starts a rank for each GPU, and they meet at the job's first node. From the repository's root:
#     sbatch [--nodes N] configs/runs/slurm.sh configs/runs/gpt-13b-2-nodes.sh [flags]
# In an NGC container (pyxis and enroot), which has torch, Transformer Engine and Apex; MEGATRON_PATH names a checkout:
#     CONTAINER=nvcr.io/nvidia/pytorch:TAG sbatch configs/runs/slurm.sh ...
set -euo pipefail

container=()
[ -z "${CONTAINER:-}" ] || container=(--container-image="$CONTAINER" --container-mounts="$PWD:$PWD" --container-workdir="$PWD")
exec srun --ntasks-per-node=1 --kill-on-bad-exit=1 "${container[@]}" bash "$@"
