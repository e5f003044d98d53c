"""Rules on attention: entropy, heads, logits and masks."""
