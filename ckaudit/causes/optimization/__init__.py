"""Causes in the optimizer: learning rate, schedule, clipping, batch size."""
