"""What a run recorded of the catalogue, and which lines would let more be judged."""
