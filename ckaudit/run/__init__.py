"""A run in memory: series of everything recorded, read from a folder or made from lines."""
