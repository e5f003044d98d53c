"""Several ranks: access to whole tensors, and what each rank contributes."""
