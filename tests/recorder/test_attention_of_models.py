"""Attention of the library's models, fused and by hand, against the probabilities that the models put out themselves."""

import numpy as np
import pytest
import torch
from transformers import (
    BartConfig,
    BartForConditionalGeneration,
    BertConfig,
    BertForMaskedLM,
    GPT2Config,
    GPT2LMHeadModel,
    MistralConfig,
    MistralForCausalLM,
    T5Config,
    T5ForConditionalGeneration,
)

from tests.recorder.test_fused_attention import attention_of

VOCABULARY, LENGTH, TARGETS = 64, 12, 7
SIZES = {
    "vocab_size": VOCABULARY,
    "hidden_size": 32,
    "intermediate_size": 64,
    "num_hidden_layers": 2,
    "num_attention_heads": 4,
    "max_position_embeddings": 32,
    "pad_token_id": 0,
}
HALF = {"layers": 2, "attention_heads": 4, "ffn_dim": 64}
HALVES = {f"{half}_{name}": value for half in ("encoder", "decoder") for name, value in HALF.items()}
MODELS = {
    "gpt2": (GPT2LMHeadModel, GPT2Config(vocab_size=VOCABULARY, n_embd=32, n_layer=2, n_head=4, bos_token_id=0, eos_token_id=0)),
    "bert": (BertForMaskedLM, BertConfig(**SIZES)),
    "window": (MistralForCausalLM, MistralConfig(**SIZES, num_key_value_heads=2, sliding_window=5)),
    "t5": (
        T5ForConditionalGeneration,
        T5Config(vocab_size=VOCABULARY, d_model=32, d_kv=8, d_ff=64, num_layers=2, num_heads=4, decoder_start_token_id=0),
    ),
    "bart": (
        BartForConditionalGeneration,
        BartConfig(vocab_size=VOCABULARY, d_model=32, **HALVES, max_position_embeddings=32, decoder_start_token_id=2),
    ),
}


@pytest.fixture(params=MODELS)
def made(request):
    """Return a maker of the model, with weights so large that its heads are sharp and differ, and whether it has two halves."""
    kind, config = MODELS[request.param]

    def make(attention):
        torch.manual_seed(0)
        model = kind._from_config(config, attn_implementation=attention).eval()
        with torch.no_grad():
            for parameter in model.parameters():
                parameter.mul_(6 if parameter.ndim == 2 else 1)
        return model

    return make, request.param in ("t5", "bart")


class Keywords(torch.nn.Module):
    """A model whose keywords are known beforehand."""

    def __init__(self, model, keywords):
        super().__init__()
        self.model, self.keywords = model, keywords

    def forward(self):
        return self.model(**self.keywords).logits


def entropies(probabilities):
    p = probabilities.detach().double().numpy()
    return -(p * np.log(np.where(p > 0, p, 1))).sum(-1).mean((0, 2))


@pytest.mark.parametrize("attention", ["sdpa", "eager"])
@pytest.mark.parametrize("is_padded", [False, True])
def test_entropies_are_those_of_the_model_s_own_probabilities(made, attention, is_padded):
    make, has_halves = made
    tokens = torch.randint(3, VOCABULARY, (2, LENGTH), generator=torch.Generator().manual_seed(1))
    mask = torch.ones_like(tokens)
    mask[1, LENGTH - 3 * is_padded :] = 0
    keywords = {"input_ids": tokens, "attention_mask": mask}
    if has_halves:
        keywords["labels"] = tokens[:, :TARGETS].contiguous()
    model = Keywords(make(attention), keywords)
    bare = model()
    seen = attention_of(model)
    assert torch.equal(model(), bare)
    with torch.no_grad():
        shown = make("eager")(**keywords, output_attentions=True)
    if has_halves:
        decoder = [layer for pair in zip(shown.decoder_attentions, shown.cross_attentions, strict=True) for layer in pair]
        shown = [*shown.encoder_attentions, *decoder]
    else:
        shown = shown.attentions
    assert len(seen.attention) == len(shown)
    for stats, probabilities in zip(seen.attention.values(), shown, strict=True):
        np.testing.assert_allclose(stats.entropy_per_head, entropies(probabilities), rtol=2e-3, atol=2e-4)
        later = probabilities.triu(1 + probabilities.shape[3] - probabilities.shape[2]).sum()
        assert (stats.causal is True) == (float(later) == 0)
