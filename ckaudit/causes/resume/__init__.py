"""Causes in what a resume restored."""
