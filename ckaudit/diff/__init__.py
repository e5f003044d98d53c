"""Comparison of runs: whether they are comparable, where they part, how far, and whether it matters."""
