"""Stores of trackers: series of points, each with a step of its own, and what a store knows of its runs."""
