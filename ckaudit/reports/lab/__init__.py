"""The lab's catalogue and its score, drawn."""
