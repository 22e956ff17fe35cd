"""Worker: a small stock GPT through Megatron's own `pretrain`, as its pretrain_gpt.py does it, on mock data."""

import sys
from functools import partial

MODEL = (
    "--num-layers 2 --hidden-size 64 --num-attention-heads 4 --seq-length 64 --max-position-embeddings 64 "
    "--tokenizer-type NullTokenizer --vocab-size 255 --mock-data --micro-batch-size 2 --global-batch-size 4 "
    "--lr 1e-3 --min-lr 1e-4 --clip-grad 1.0 --seed 1234 --log-interval 1 --eval-interval 1000 --eval-iters 0"
).split()


def train(flags: list[str]) -> list[float]:
    """The loss of every micro-batch of this rank."""
    from paradyse_megatron import cpu

    cpu.enable()
    from megatron.core.enums import ModelType
    from megatron.training import pretrain
    from megatron.training.argument_utils import gpt_config_from_args, pretrain_cfg_container_from_args
    from megatron.training.arguments import parse_and_validate_args

    sys.argv = ["pretrain", *MODEL, *cpu.MEGATRON_FLAGS, *flags]
    args = parse_and_validate_args()
    losses: list[float] = []
    _datasets.is_distributed = True  # otherwise Megatron asks the first rank only
    pretrain(
        pretrain_cfg_container_from_args(args, gpt_config_from_args(args)),
        _datasets,
        ModelType.encoder_or_decoder,
        partial(_forward_step, losses),
    )
    return losses


def _datasets(num_samples):
    from megatron.core.datasets.blended_megatron_dataset_builder import BlendedMegatronDatasetBuilder
    from megatron.core.datasets.gpt_dataset import GPTDatasetConfig, MockGPTDataset
    from megatron.core.tokenizers.utils.build_tokenizer import build_tokenizer
    from megatron.training import get_args

    args = get_args()
    config = GPTDatasetConfig(
        random_seed=args.seed,
        sequence_length=args.seq_length,
        tokenizer=build_tokenizer(args),
        split="1,0,0",
        reset_position_ids=False,
        reset_attention_mask=False,
        eod_mask_loss=False,
        create_attention_mask=False,
    )
    return BlendedMegatronDatasetBuilder(MockGPTDataset, num_samples, lambda: True, config).build()


def _forward_step(losses, data_iterator, model):
    batch = next(data_iterator)
    tokens, labels, mask, positions = (batch[key].cuda() for key in ("tokens", "labels", "loss_mask", "position_ids"))
    output = model(tokens, positions, None, labels=labels)
    return output, partial(_loss, losses, mask)


def _loss(losses, mask, output):
    import torch

    loss = (output.float() * mask).sum()
    num_tokens = mask.sum().to(torch.int)
    losses.append((loss / num_tokens).item())
    return loss, num_tokens, {"lm loss": torch.cat([loss.detach().view(1), num_tokens.view(1)])}
