"""A small model, and what loops save of it."""

import pytest


@pytest.fixture
def torch():
    """Give torch with one thread; only tests that make real files need it."""
    torch = pytest.importorskip("torch")
    torch.set_num_threads(1)
    return torch


@pytest.fixture
def trained(torch):
    """Return a small model and an optimizer with moments."""
    torch.manual_seed(0)
    model = torch.nn.Sequential(torch.nn.Linear(16, 16), torch.nn.Linear(16, 4))
    optimizer = torch.optim.AdamW(model.parameters())
    model(torch.ones(2, 16)).sum().backward()
    optimizer.step()
    return model, optimizer


@pytest.fixture
def saved(torch, trained, tmp_path):
    """Return a folder with three checkpoints, as nanoGPT and many other loops write them."""
    model, optimizer = trained
    for step in (100, 200, 300):
        state = {
            "model": model.state_dict(),
            "optimizer": optimizer.state_dict(),
            "lr_scheduler": {"last_epoch": step},
            "step": step,
            "rng_state": torch.get_rng_state(),
            "samples_seen": 8 * step,
        }
        torch.save(state, tmp_path / f"step_{step}.pt")
    return tmp_path
