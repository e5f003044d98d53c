"""Coverage of the catalogue by a run, and the lines that would allow more checks to judge."""
