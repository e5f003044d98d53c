"""Resume checkpoints: what a run could resume from, and whether it could."""
