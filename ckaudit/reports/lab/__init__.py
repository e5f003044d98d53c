"""Renders the lab's catalogue and its score."""
