"""Faults, each of known truth, in one file for each part of a training that they concern."""
