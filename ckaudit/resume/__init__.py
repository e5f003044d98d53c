"""Resume checkpoints: what a run would go on from, and whether it could."""
