"""A tiny Llama and the Trainer around it, which notes what the recorder should say of each step."""

import numpy as np
import torch
from transformers import LlamaConfig, LlamaForCausalLM, PrinterCallback, Trainer, TrainingArguments

from ckaudit.recorder.huggingface import RecorderCallback

VOCABULARY, LENGTH = 64, 32


class WitnessTrainer(Trainer):
    """Notes inputs and gradient norms after each micro-batch, and the attention of the model before it.

    After the last micro-batch of a step and before anything is clipped, the norms are those of the step.
    """

    notes_attention = False

    def training_step(self, model, inputs, num_items_in_batch=None):
        self.seen = getattr(self, "seen", {})
        note = self.seen.setdefault(self.state.global_step + 1, {"inputs": []})
        note["inputs"].append(inputs)
        if self.notes_attention:
            with torch.no_grad():
                note["attention"] = model(input_ids=inputs["input_ids"], output_attentions=True).attentions
        loss = super().training_step(model, inputs, num_items_in_batch)
        found = {name: p.grad for name, p in model.named_parameters() if p.grad is not None}
        note["norms"] = {name.removeprefix("_orig_mod."): np.linalg.norm(g.double().numpy()) for name, g in found.items()}
        return loss


def llama(*, attention="eager", **config):
    """Return the model, the same each time."""
    torch.manual_seed(0)
    sizes = {"hidden_size": 32, "intermediate_size": 64, "num_hidden_layers": 2, "num_attention_heads": 4}
    shared = {"num_key_value_heads": 2, "tie_word_embeddings": True, "max_position_embeddings": LENGTH}
    return LlamaForCausalLM(LlamaConfig(vocab_size=VOCABULARY, attn_implementation=attention, **sizes | shared | config))


def rows(count=54):
    """Return sequences of which the model can learn something: each token follows from the one before."""
    first = torch.randint(0, VOCABULARY, (count, 1), generator=torch.Generator().manual_seed(1))
    return [{"input_ids": row, "labels": row.clone()} for row in (first * 7 + 3 * torch.arange(LENGTH)) % VOCABULARY]


def trainer(folder, output, *, model=None, data=None, recorded=True, evaluated=None, callbacks=(), options=None, **arguments):
    """Return a Trainer of 30 short steps of two micro-batches; a round of the data ends in a step of only one."""
    usual = {
        "max_steps": 30,
        "per_device_train_batch_size": 2,
        "gradient_accumulation_steps": 2,
        "learning_rate": 1e-2,
        "seed": 3,
        "warmup_steps": 5,
        "max_grad_norm": 0.5,
        "logging_steps": 1,
        "logging_nan_inf_filter": False,
        "save_strategy": "no",
        "use_cpu": True,
        "report_to": [],
        "disable_tqdm": True,
    }
    evaluation = {"eval_strategy": "steps", "eval_steps": 10} if evaluated else {}
    made = WitnessTrainer(
        model or llama(),
        TrainingArguments(str(output), **usual | evaluation | arguments),
        train_dataset=data or rows(),
        eval_dataset=evaluated,
        callbacks=[*callbacks, *([RecorderCallback(folder, **options or {})] if recorded else [])],
    )
    made.remove_callback(PrinterCallback)
    return made
