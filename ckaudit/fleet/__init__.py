"""Audits of many runs: runs are found, audited locally or on a cluster, ranked, and kept as one data set."""
