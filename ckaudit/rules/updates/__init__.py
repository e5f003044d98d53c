"""Rules on updates: how far weights move, and by which learning rate."""
