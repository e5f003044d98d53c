"""Runs compared: whether they can be, where they part, how far, and whether it matters."""
