"""The tabs, one file each, found by importing this folder."""
