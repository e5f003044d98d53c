"""The tabs, one file each, found by walking."""
