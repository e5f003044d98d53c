"""One step of a training: its state, its clock, its events, and when a checkpoint is due."""
