"""How large a checkpoint is, and what it holds under a limit."""
