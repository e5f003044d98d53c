"""A tiny Llama trained by the Hugging Face Trainer; the callback is all it takes to record it."""

import torch
from transformers import LlamaConfig, LlamaForCausalLM, Trainer, TrainingArguments

from ckaudit.recorder.huggingface import RecorderCallback

torch.manual_seed(0)
config = LlamaConfig(
    vocab_size=64,
    hidden_size=32,
    intermediate_size=64,
    num_hidden_layers=2,
    num_attention_heads=4,
    num_key_value_heads=2,
    attn_implementation="eager",  # computes the attention probabilities one by one, so that they can be recorded
)
tokens = (torch.randint(0, 64, (256, 1)) + torch.arange(16)) % 64
rows = [{"input_ids": row, "labels": row} for row in tokens]
arguments = TrainingArguments(
    "out/",
    max_steps=200,
    per_device_train_batch_size=8,
    learning_rate=1e-3,
    warmup_steps=20,
    use_cpu=True,
    report_to=[],
    eval_strategy="steps",
    eval_steps=20,
    logging_steps=50,
    save_strategy="no",
    disable_tqdm=True,
)
trainer = Trainer(
    LlamaForCausalLM(config), arguments, train_dataset=rows[:192], eval_dataset=rows[192:], callbacks=[RecorderCallback("run/")]
)
trainer.train()
print("now look at it: ckaudit triage run/")
