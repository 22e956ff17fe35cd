# What the runs in this folder share; they source it.
#     DATA_PATH   prefix of a Megatron dataset (docs/data.md says how to make one)
#     TOKENIZER   a Hugging Face tokenizer's folder or name; without one, tokens are numbers below --vocab-size
#     TRANSFORMER_IMPL   transformer_engine (default) or local, whose attention stores s x s scores under tp_sp
#     PARADYSE_CLUSTER   description to plan by, configs/clusters (default: dgx-h100)
# `bash RUN.sh --dry-run` shows command, plans and memory verdict on any machine. Flags after the name win.
# Nodes: NNODES, NODE_RANK, MASTER_ADDR and MASTER_PORT, or one `srun` task a node (slurm.sh).
# Nothing here has been run on GPUs yet; learning rates and batch sizes are customary ones.
set -euo pipefail

root="$(cd "$(dirname "${BASH_SOURCE[0]}")/../.." && pwd)"
name="$(basename "$0" .sh)"
export PARADYSE_OUT="${PARADYSE_OUT:-runs/$name}" PARADYSE_NPROC="${PARADYSE_NPROC:-8}"
export PARADYSE_CLUSTER="${PARADYSE_CLUSTER:-dgx-h100}"
export PYTORCH_CUDA_ALLOC_CONF="${PYTORCH_CUDA_ALLOC_CONF:-expandable_segments:True}" # lengths vary from step to step

LLAMA=(
    --swiglu --disable-bias-linear --normalization RMSNorm --norm-epsilon 1e-5
    --position-embedding-type rope --untie-embeddings-and-output-weights
)

launch() {
    local data="${DATA_PATH:-data/documents}"
    local tokenizer=(--tokenizer-type NullTokenizer)
    [ -z "${TOKENIZER:-}" ] || tokenizer=(--tokenizer-type HuggingFaceTokenizer --tokenizer-model "$TOKENIZER")
    # Without Apex, Megatron's output layer cannot add weight gradients inside the product.
    DATA_PATH="$data" exec bash "$root/scripts/pretrain_gpt_paradyse.sh" \
        --transformer-impl "${TRANSFORMER_IMPL:-transformer_engine}" --no-gradient-accumulation-fusion \
        --bf16 --use-distributed-optimizer --overlap-grad-reduce --overlap-param-gather \
        --make-vocab-size-divisible-by 1 "${tokenizer[@]}" \
        --lr 3e-4 --min-lr 3e-5 --lr-decay-style cosine --lr-warmup-iters 100 --train-iters 10000 \
        --weight-decay 0.1 --clip-grad 1.0 --adam-beta2 0.95 --init-method-std 0.02 \
        --save-interval 500 --log-interval 10 --eval-iters 0 "$@"
}
