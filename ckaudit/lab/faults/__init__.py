"""One fault in each file."""
