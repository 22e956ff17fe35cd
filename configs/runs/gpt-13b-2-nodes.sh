#!/usr/bin/env bash
# GPT-13B on two nodes of 8 GPUs, one pipeline stage each:
#     NNODES=2 NODE_RANK=0 MASTER_ADDR=node0 bash configs/runs/gpt-13b-2-nodes.sh --dry-run
#     sbatch configs/runs/slurm.sh configs/runs/gpt-13b-2-nodes.sh
# Plans end at --seq-length, and so do the learned positions of this model.
source "$(dirname "${BASH_SOURCE[0]}")/common.sh"

launch \
    --num-layers 40 --hidden-size 5120 --num-attention-heads 40 --vocab-size 50304 \
    --seq-length 65536 --max-position-embeddings 65536 \
    --tensor-model-parallel-size 8 --pipeline-model-parallel-size 2 \
    --micro-batch-size 1 --global-batch-size 64 "$@"
