"""Measurements that need passes of their own: curvature, noise scale, gradient checks, fixed batches."""
