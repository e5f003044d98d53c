"""Summaries of a few hundred words for readers that pay per token: the key facts, and which command prints the rest."""
