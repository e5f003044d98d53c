"""Pictures that need no script, as SVG: a chart of curves, and the first page of a report as one picture."""
