"""Faults with known truth, one file for each part of a training that they concern."""
