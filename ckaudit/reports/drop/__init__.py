"""Why a benchmark fell, gate by gate, drawn."""
