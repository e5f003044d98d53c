"""Healthy siblings as a yardstick: what leaves the band of their values is found, and what they have too is normal."""
