"""Text logs: lines of a step become columns, and lines that tell of errors become events."""
