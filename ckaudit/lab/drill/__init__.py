"""A fire drill: a user's own training, short and separate from real runs, healthy and with faults, and the audit of each."""
