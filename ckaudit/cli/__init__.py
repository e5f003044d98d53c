"""The command line: one file per command, heavy things imported inside the function that needs them."""
