"""A Llama as `transformers` has it, with random weights."""

from typing import Any

from torch import nn

from ckaudit.lab.plan import Llama


def llama(plan: Llama, *, vocabulary: int, length: int) -> nn.Module:
    """Build the model; it puts out an object whose `logits` are (B, T, V)."""
    from transformers import LlamaConfig, LlamaForCausalLM

    config: Any = LlamaConfig(
        vocab_size=vocabulary,
        hidden_size=plan.width,
        intermediate_size=plan.hidden,
        num_hidden_layers=plan.depth,
        num_attention_heads=plan.heads,
        num_key_value_heads=plan.kv_heads,
        max_position_embeddings=length,
        use_cache=False,
        bos_token_id=None,
        eos_token_id=None,
    )
    model: nn.Module = LlamaForCausalLM(config)
    return model
