"""Columns of numbers with a step per row, from text, JSON lines or any table, joined to the lines of a run."""
