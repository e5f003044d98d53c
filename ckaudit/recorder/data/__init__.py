"""What batches look like, and which of them were seen before."""
