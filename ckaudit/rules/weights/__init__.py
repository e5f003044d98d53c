"""Rules on weights: their size, and how they were initialized."""
