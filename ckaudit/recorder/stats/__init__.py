"""Statistics of tensors: percentiles, norms, grids, attention, experts."""
