"""Remote runs: addresses in object storage and on the web, read through a small cache."""
