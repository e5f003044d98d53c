"""Causes in the model: paths, attention, activations, capacity."""
