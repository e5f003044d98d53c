"""Audits neural-network training runs from the statistics they wrote."""

__version__ = "0.1.0"
