"""Healthy siblings as a yardstick: values outside their band are findings, and findings that they have too are normal."""
