#!/usr/bin/env bash
# Llama-2-7B on one node of 8 GPUs, documents of up to 256K tokens:
#     bash configs/runs/llama-2-7b.sh --dry-run
#     DATA_PATH=data/code TOKENIZER=path/to/tokenizer bash configs/runs/llama-2-7b.sh --save checkpoints
source "$(dirname "${BASH_SOURCE[0]}")/common.sh"

launch \
    --num-layers 32 --hidden-size 4096 --ffn-hidden-size 11008 --num-attention-heads 32 \
    "${LLAMA[@]}" --vocab-size 32000 --rotary-base 10000 \
    --seq-length 262144 --max-position-embeddings 262144 \
    --tensor-model-parallel-size 8 --micro-batch-size 1 --global-batch-size 64 "$@"
