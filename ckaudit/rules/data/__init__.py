"""Rules on what a training is fed: batches, tokens, sources, targets."""
