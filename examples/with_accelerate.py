"""A loop with Accelerate: the recorder takes the prepared objects, and is called where gradients are synchronised.

The order matters: `after_backward` before `accelerator.clip_grad_norm_`, `step` after `optimizer.step()`, both once per
update and not once per micro-batch.
"""

import torch
from accelerate import Accelerator
from torch import nn
from torch.utils.data import DataLoader, TensorDataset

from ckaudit.recorder import Recorder

torch.manual_seed(0)
accelerator = Accelerator(cpu=True, gradient_accumulation_steps=2)
tokens = (torch.randint(0, 64, (3200, 1)) + torch.arange(17)) % 64
loader = DataLoader(TensorDataset(tokens[:, :-1], tokens[:, 1:]), batch_size=8)
model = nn.Sequential(nn.Embedding(64, 32), nn.Linear(32, 64), nn.GELU(), nn.Linear(64, 64))
model, optimizer, loader = accelerator.prepare(model, torch.optim.AdamW(model.parameters(), lr=1e-3), loader)
recorder = Recorder(
    model, "run/", optimizer=optimizer, scaler=accelerator.scaler, vocabulary=64, sequence_length=16, clip_norm=1.0
)  # 1
losses = []
for inputs, targets in loader:
    with accelerator.accumulate(model):
        loss = nn.functional.cross_entropy(model(inputs).flatten(0, 1), targets.flatten())
        losses.append(loss.detach())
        accelerator.backward(loss)
        if accelerator.sync_gradients:
            recorder.after_backward()  # 2
            accelerator.clip_grad_norm_(model.parameters(), 1.0)
        optimizer.step()
        optimizer.zero_grad()
        if accelerator.sync_gradients:
            recorder.step(torch.stack(losses).mean(), batch=(inputs, targets))  # 3
            losses.clear()
recorder.close()
print("now look at it: ckaudit triage run/")
