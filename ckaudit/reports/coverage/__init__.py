"""What a run recorded of the catalogue, drawn."""
