"""Metrics and scalars of whatever the user named, as tables."""
