"""A comparison, drawn; what shows findings is given a report."""
