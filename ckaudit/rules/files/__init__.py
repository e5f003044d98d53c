"""Rules on the record itself: checkpoints that are broken, missing, heavy or that contradict themselves."""
