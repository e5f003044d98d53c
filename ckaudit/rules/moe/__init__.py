"""Rules on mixtures of experts."""
