"""The files that a recorder writes: the run folder, its manifest, scalars and checkpoints."""
