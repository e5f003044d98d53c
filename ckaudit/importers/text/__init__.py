"""Text logs: lines with a step become columns, and lines that report errors become events."""
