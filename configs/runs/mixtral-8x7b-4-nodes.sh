#!/usr/bin/env bash
# A mixture of experts of Mixtral 8x7B's shape on four nodes of 8 GPUs, one pipeline stage each:
#     NNODES=4 NODE_RANK=0 MASTER_ADDR=node0 bash configs/runs/mixtral-8x7b-4-nodes.sh --dry-run
#     sbatch --nodes 4 configs/runs/slurm.sh configs/runs/mixtral-8x7b-4-nodes.sh
# Attention follows the plan; experts stay Megatron's, each cut among the 8 tensor-parallel ranks.
source "$(dirname "${BASH_SOURCE[0]}")/common.sh"

launch \
    --num-layers 32 --hidden-size 4096 --ffn-hidden-size 14336 --num-attention-heads 32 \
    --group-query-attention --num-query-groups 8 \
    --num-experts 8 --moe-router-topk 2 --moe-token-dispatcher-type alltoall \
    "${LLAMA[@]}" --vocab-size 32000 --rotary-base 1000000 \
    --seq-length 65536 --max-position-embeddings 65536 \
    --tensor-model-parallel-size 8 --pipeline-model-parallel-size 4 --expert-model-parallel-size 1 \
    --micro-batch-size 1 --global-batch-size 64 "$@"
