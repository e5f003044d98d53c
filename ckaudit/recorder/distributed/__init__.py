"""Several ranks: access to whole tensors, and the facts that each rank records."""
