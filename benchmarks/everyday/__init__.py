"""Everyday trainings as PyTorch users write them, healthy and with everyday mistakes, and what triage says of them.

    python -m benchmarks.everyday [--only NAME,...] [--seed 0] [--jobs 2] [--cache FOLDER] [--write]

`tasks` and `healthy` have the healthy trainings, `mistakes` what is done wrong to the tasks. `docs/everyday.md` has the tables.
"""
