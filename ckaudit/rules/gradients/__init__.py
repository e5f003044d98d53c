"""Rules on gradients: their size, where they are missing, and their noise."""
