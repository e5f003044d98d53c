"""Models of text from transformers, with small configurations."""

from typing import Any

import torch
from msgspec.structs import replace
from torch import Tensor, nn

from ckaudit.lab.zoo.recipe import Recipe, own_loss, pretrained
from ckaudit.lab.zoo.synthetic_data import FIRST, WORDS, chain, topics

LENGTH = 32


PAD, START, END, MASK = range(FIRST)


SPECIAL = {"pad_token_id": PAD, "bos_token_id": START, "eos_token_id": END}


SIZES = {
    "vocab_size": WORDS,
    "hidden_size": 64,
    "num_hidden_layers": 2,
    "num_attention_heads": 4,
    "intermediate_size": 128,
    "max_position_embeddings": LENGTH,
}


def next_tokens(source: torch.Generator, rows: int) -> dict[str, Tensor]:
    """Return rows for predicting the next token."""
    tokens = chain(source, rows, LENGTH)
    return {"input_ids": tokens, "labels": tokens}


def masked_tokens(source: torch.Generator, rows: int) -> dict[str, Tensor]:
    """Return rows with some masked tokens to be predicted; the ends of some are padding."""
    tokens = topics(source, rows, LENGTH)
    lengths = torch.randint(LENGTH // 2, LENGTH + 1, (rows, 1), generator=source)
    kept = torch.arange(LENGTH) < lengths
    hidden = (torch.rand(tokens.shape, generator=source) < 0.15) & kept
    hidden[:, 1] = True
    shown = torch.where(hidden, MASK, tokens).masked_fill(~kept, PAD)
    return {"input_ids": shown, "attention_mask": kept.long(), "labels": torch.where(hidden, tokens, -100)}


def translations(source: torch.Generator, rows: int) -> dict[str, Tensor]:
    """Return rows to be translated into another alphabet, word by word."""
    tokens = chain(source, rows, LENGTH // 2)
    alphabet = FIRST + torch.randperm(WORDS - FIRST, generator=torch.Generator().manual_seed(9))
    labels = torch.cat([alphabet[tokens - FIRST], torch.full((rows, 1), END)], 1)
    return {"input_ids": tokens, "labels": labels}


def gpt2() -> nn.Module:
    """Return a small GPT-2."""
    from transformers import GPT2Config, GPT2LMHeadModel

    return GPT2LMHeadModel(GPT2Config(vocab_size=WORDS, n_positions=LENGTH, n_embd=64, n_layer=3, n_head=4, **SPECIAL))


def llama() -> nn.Module:
    """Return a small Llama."""
    from transformers import LlamaConfig, LlamaForCausalLM

    return LlamaForCausalLM(
        LlamaConfig(
            vocab_size=WORDS,
            hidden_size=64,
            intermediate_size=128,
            num_hidden_layers=3,
            num_attention_heads=4,
            num_key_value_heads=2,
            max_position_embeddings=LENGTH,
            **SPECIAL,
        )
    )


def bert() -> nn.Module:
    """Return a small BERT that predicts masked words."""
    from transformers import BertConfig, BertForMaskedLM

    return BertForMaskedLM(
        BertConfig(
            vocab_size=WORDS,
            hidden_size=64,
            num_hidden_layers=3,
            num_attention_heads=4,
            intermediate_size=128,
            max_position_embeddings=LENGTH,
            pad_token_id=PAD,
        )
    )


def t5() -> nn.Module:
    """Return a small T5."""
    from transformers import T5Config, T5ForConditionalGeneration

    return T5ForConditionalGeneration(
        T5Config(
            vocab_size=WORDS,
            d_model=64,
            d_kv=16,
            d_ff=128,
            num_layers=2,
            num_heads=4,
            decoder_start_token_id=PAD,
            pad_token_id=PAD,
            eos_token_id=END,
        )
    )


def bart() -> nn.Module:
    """Return a small BART."""
    from transformers import BartConfig, BartForConditionalGeneration

    return BartForConditionalGeneration(
        BartConfig(
            vocab_size=WORDS,
            d_model=64,
            encoder_layers=2,
            decoder_layers=2,
            encoder_attention_heads=4,
            decoder_attention_heads=4,
            encoder_ffn_dim=128,
            decoder_ffn_dim=128,
            max_position_embeddings=LENGTH,
            decoder_start_token_id=END,
            forced_eos_token_id=None,
            **SPECIAL,
        )
    )


def mamba() -> nn.Module:
    """Return a small Mamba."""
    from transformers import MambaConfig, MambaForCausalLM

    return MambaForCausalLM(
        MambaConfig(vocab_size=WORDS, hidden_size=48, state_size=8, num_hidden_layers=2, use_mambapy=False, **SPECIAL)
    )


def mixtral() -> nn.Module:
    """Return a small Mixtral."""
    from transformers import MixtralConfig, MixtralForCausalLM

    return MixtralForCausalLM(
        MixtralConfig(**SIZES, num_key_value_heads=2, num_local_experts=4, num_experts_per_tok=2, **SPECIAL)
    )


def gemma() -> nn.Module:
    """Return a small Gemma 3, in which most layers attend to a window only."""
    from transformers import Gemma3ForCausalLM, Gemma3TextConfig

    sizes = SIZES | {"num_hidden_layers": 3}
    return Gemma3ForCausalLM(Gemma3TextConfig(**sizes, num_key_value_heads=2, head_dim=16, sliding_window=8, **SPECIAL))


def electra() -> nn.Module:
    """Return a small ELECTRA that predicts masked words."""
    from transformers import ElectraConfig, ElectraForMaskedLM

    return ElectraForMaskedLM(ElectraConfig(**SIZES, embedding_size=32, pad_token_id=PAD))


def deberta() -> nn.Module:
    """Return a small DeBERTa, whose attention has a separate term for positions."""
    from transformers import DebertaV2Config, DebertaV2ForMaskedLM

    sides = {"relative_attention": True, "pos_att_type": ["c2p", "p2c"], "position_buckets": 16}
    return DebertaV2ForMaskedLM(DebertaV2Config(**SIZES, **sides, pad_token_id=PAD))


def qwen3() -> nn.Module:
    """Return a small Qwen 3, which norms queries and keys."""
    from transformers import Qwen3Config, Qwen3ForCausalLM

    return Qwen3ForCausalLM(Qwen3Config(**SIZES, num_key_value_heads=2, head_dim=16, tie_word_embeddings=True, **SPECIAL))


def phi() -> nn.Module:
    """Return a small Phi, whose attention and MLP share a norm, and whose queries are partly rotated."""
    from transformers import PhiConfig, PhiForCausalLM

    return PhiForCausalLM(PhiConfig(**SIZES, partial_rotary_factor=0.5, **SPECIAL))


def gpt_neox() -> nn.Module:
    """Return a small GPT-NeoX, with attention and MLP in parallel."""
    from transformers import GPTNeoXConfig, GPTNeoXForCausalLM

    return GPTNeoXForCausalLM(GPTNeoXConfig(**SIZES, use_parallel_residual=True, **SPECIAL))


def opt() -> nn.Module:
    """Return a small OPT, with ReLU and learnt positions."""
    from transformers import OPTConfig, OPTForCausalLM

    return OPTForCausalLM(
        OPTConfig(
            vocab_size=WORDS,
            hidden_size=64,
            word_embed_proj_dim=64,
            num_hidden_layers=3,
            num_attention_heads=4,
            ffn_dim=128,
            max_position_embeddings=LENGTH,
            **SPECIAL,
        )
    )


def roberta() -> nn.Module:
    """Return a small RoBERTa that predicts masked words."""
    from transformers import RobertaConfig, RobertaForMaskedLM

    sizes = SIZES | {"max_position_embeddings": LENGTH + 2}
    return RobertaForMaskedLM(RobertaConfig(**sizes, **SPECIAL))


class LoraLinear(nn.Module):
    """A frozen linear layer, with a trained product of two low-rank matrices in parallel.

    Args:
        base: The layer; a `Conv1D` of transformers.
        rank: Rank of the matrices.
        alpha: Weight of their product, times `1 / rank`.
    """

    def __init__(self, base: Any, *, rank: int = 8, alpha: float = 16.0) -> None:
        super().__init__()
        self.base, self.scale = base, alpha / rank
        self.lora_A = nn.Linear(base.nx, rank, bias=False)
        self.lora_B = nn.Linear(rank, base.nf, bias=False)
        nn.init.zeros_(self.lora_B.weight)

    def forward(self, x: Tensor) -> Tensor:
        """Map (..., D) to (..., E)."""
        output: Tensor = self.base(x) + self.scale * self.lora_B(self.lora_A(x))
        return output


def frozen_gpt2() -> Any:
    """Return a GPT-2 that knows one language."""
    tokens = chain(torch.Generator().manual_seed(5), 1024, LENGTH, shift=1)
    return pretrained(gpt2(), {"input_ids": tokens, "labels": tokens}, own_loss, steps=120, lr=3e-3, batch=16)


def lora() -> nn.Module:
    """Return a GPT-2 that knows one language, with low-rank matrices that are to learn another."""
    model = frozen_gpt2()
    for block in model.transformer.h:
        block.attn.c_attn = LoraLinear(block.attn.c_attn)
        block.mlp.c_fc = LoraLinear(block.mlp.c_fc)
    return model


class Adapter(nn.Module):
    """A frozen module, followed by a trained bottleneck (Houlsby et al. 2019, arXiv:1902.00751).

    Args:
        base: The module.
        width: Width of its output.
        narrow: Width of the bottleneck.
    """

    def __init__(self, base: nn.Module, width: int, *, narrow: int = 8) -> None:
        super().__init__()
        self.base, self.down, self.up = base, nn.Linear(width, narrow), nn.Linear(narrow, width)
        nn.init.zeros_(self.up.weight)
        nn.init.zeros_(self.up.bias)

    def forward(self, x: Tensor) -> Tensor:
        """Map (..., D) to (..., E)."""
        output: Tensor = self.base(x)
        return output + self.up(nn.functional.gelu(self.down(output)))


def adapters() -> nn.Module:
    """Return a GPT-2 that knows one language, with bottlenecks after attention and MLP that are to learn another."""
    model = frozen_gpt2()
    for block in model.transformer.h:
        block.attn.c_proj, block.mlp.c_proj = Adapter(block.attn.c_proj, 64), Adapter(block.mlp.c_proj, 64)
    return model


def dialogues(source: torch.Generator, rows: int) -> dict[str, Tensor]:
    """Return rows of tokens; the trainer of TRL makes the targets itself."""
    return {"tokens": chain(source, rows, LENGTH - 1)}


def preference_rows(source: torch.Generator, rows: int) -> dict[str, Tensor]:
    """Return questions, a preferred answer to each in its own language, and one in another."""
    tokens = chain(source, rows, LENGTH - 2)
    asked, answered = tokens[:, :ASKED], tokens[:, ASKED:]
    rejected = chain(source, rows, answered.shape[1], shift=1)
    return {"prompt": asked, "chosen": answered, "rejected": rejected}


ASKED = 10  # tokens of a question


TEXT = Recipe(
    model=gpt2, rows=next_tokens, through="transformers", lr=2e-3, schedule="linear", warmup=20, clip=1.0, weight_decay=0.01
)


FAMILIES = {
    "gpt2": TEXT,
    "llama": replace(TEXT, model=llama, schedule="cosine", weight_decay=0.1),
    "qwen3": replace(TEXT, model=qwen3, schedule="cosine"),
    "gemma": replace(TEXT, model=gemma),
    "phi": replace(TEXT, model=phi),
    "gpt_neox": replace(TEXT, model=gpt_neox, schedule="cosine"),
    "opt": replace(TEXT, model=opt, lr=1e-3),
    "mixtral": replace(TEXT, model=mixtral),
    "mamba": replace(TEXT, model=mamba, lr=3e-3, train=1024, batch=8),
    "lora": replace(TEXT, model=lora, lr=3e-3, warmup=0),
    "adapters": replace(TEXT, model=adapters, lr=5e-3, warmup=0),
    "sft": replace(TEXT, model=llama, rows=dialogues, through="sft"),
    "dpo": replace(TEXT, model=llama, rows=preference_rows, through="dpo", lr=3e-4, batch=8, train=512, held_out=32),
    "bert": replace(TEXT, model=bert, rows=masked_tokens, lr=1e-3),
    "roberta": replace(TEXT, model=roberta, rows=masked_tokens, lr=1e-3),
    "electra": replace(TEXT, model=electra, rows=masked_tokens, lr=1e-3),
    "deberta": replace(TEXT, model=deberta, rows=masked_tokens, lr=1e-3),
    "t5": replace(
        TEXT, model=t5, rows=translations, optimizer="adafactor", schedule="constant", warmup=0, lr=1e-3, weight_decay=0.0
    ),
    "bart": replace(TEXT, model=bart, rows=translations, lr=1e-3, batch=32),
}
