"""Causes in the data."""
