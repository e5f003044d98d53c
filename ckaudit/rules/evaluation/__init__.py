"""Rules on evaluations: benchmarks, probes, slices, and other numbers that a training logs of itself."""
