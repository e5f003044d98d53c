"""The experiments of the curriculum, one in each file."""
