"""The command line: one file per command, or for a few of the lab; heavy modules are imported inside functions."""
