"""Rules on losses: training, validation, and what stands between them."""
