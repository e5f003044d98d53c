"""SVG without scripts: a chart of curves, and the first page of a report as one picture."""
