"""One healthy training that looks ill in each file."""
