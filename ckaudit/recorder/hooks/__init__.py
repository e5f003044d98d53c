"""What is seen of forward and backward passes."""
