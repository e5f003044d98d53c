"""One step of a training: its state, times and events, and when a checkpoint is due."""
