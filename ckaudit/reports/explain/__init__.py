"""Pages of `explain` and the list of all names, drawn."""
