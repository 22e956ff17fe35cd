#!/usr/bin/env bash
# Llama-3-8B, whose 8 key/value heads are one a rank, on one node of 8 GPUs:
#     bash configs/runs/llama-3-8b.sh --dry-run
#     DATA_PATH=data/code TOKENIZER=path/to/tokenizer bash configs/runs/llama-3-8b.sh --save checkpoints
source "$(dirname "${BASH_SOURCE[0]}")/common.sh"

launch \
    --num-layers 32 --hidden-size 4096 --ffn-hidden-size 14336 --num-attention-heads 32 \
    --group-query-attention --num-query-groups 8 \
    "${LLAMA[@]}" --vocab-size 128256 --rotary-base 500000 \
    --seq-length 131072 --max-position-embeddings 131072 \
    --tensor-model-parallel-size 8 --micro-batch-size 1 --global-batch-size 64 "$@"
