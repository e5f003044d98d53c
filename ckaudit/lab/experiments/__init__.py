"""The experiments of the curriculum, by what differs between their arms."""
