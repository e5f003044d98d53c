"""A plain PyTorch training; besides the import, three lines record it."""

import torch
from torch import nn

from ckaudit.recorder import Recorder

torch.manual_seed(0)
model = nn.Sequential(nn.Embedding(64, 32), nn.Linear(32, 64), nn.GELU(), nn.Linear(64, 64))
optimizer = torch.optim.AdamW(model.parameters(), lr=1e-3)
recorder = Recorder(model, "run/", optimizer=optimizer, vocabulary=64, sequence_length=16, seed=0, clip_norm=1.0)  # 1
for _ in range(300):
    tokens = (torch.randint(0, 64, (8, 1)) + torch.arange(17)) % 64
    inputs, targets = tokens[:, :-1], tokens[:, 1:]
    loss = nn.functional.cross_entropy(model(inputs).flatten(0, 1), targets.flatten())
    optimizer.zero_grad()
    loss.backward()
    recorder.after_backward()  # 2
    nn.utils.clip_grad_norm_(model.parameters(), 1.0)
    optimizer.step()
    recorder.step(loss, batch=(inputs, targets))  # 3
print(f"loss {loss.item():.3f}; now look at it: ckaudit triage run/")
