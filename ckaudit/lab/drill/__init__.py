"""A fire drill: a user's own training, short and apart from every real run, healthy and with faults, and what is seen of each."""
