"""The pictures of a run as data: what each tab of the report shows, and what it could not."""
