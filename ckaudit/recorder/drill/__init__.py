"""Drills: the recorder injects a fault into a user's own training if an environment variable asks for it."""
