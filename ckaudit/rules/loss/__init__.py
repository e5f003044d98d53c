"""Rules on losses: training, validation, and the gap between them."""
