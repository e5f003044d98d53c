"""Statistics of single tensors and layers with other programs' names, converted to checkpoints."""
