"""Rules on activations: dead, saturated, dropped or drifting."""
