"""The charts of a run as data: what each tab of the report shows, and what is missing."""
