"""The command line: one file per command, or for a few of the lab; heavy things imported inside the function that needs them."""
