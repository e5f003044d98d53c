"""Rules on the machines: step time, throughput, ranks, memory, monitoring."""
