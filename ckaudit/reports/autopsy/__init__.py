"""The autopsy of an event, drawn."""
