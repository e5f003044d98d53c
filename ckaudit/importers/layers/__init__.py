"""Statistics of single tensors and layers under foreign names, which become checkpoints."""
