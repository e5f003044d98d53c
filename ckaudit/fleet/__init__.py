"""The engine over many runs: they are found, audited on whatever is there to compute, ranked, and kept as one data set."""
