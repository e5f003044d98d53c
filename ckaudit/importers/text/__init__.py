"""Text logs: lines of a step become columns, and lines that report errors become events."""
