"""Causes in machines, communication and the record."""
