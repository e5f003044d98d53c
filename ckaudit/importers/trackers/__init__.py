"""Stores of trackers: series of points with steps of their own, and the facts that a store has about its runs."""
