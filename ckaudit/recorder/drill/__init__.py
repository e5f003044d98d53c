"""A fault on purpose in a user's own training, done by its recorder where the environment asks for one."""
