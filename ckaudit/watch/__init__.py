"""Watching of runs: they are judged while they grow, and each finding is announced once."""
