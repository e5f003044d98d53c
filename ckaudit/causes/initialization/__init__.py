"""Causes in the initialization."""
