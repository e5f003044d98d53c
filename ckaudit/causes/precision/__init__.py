"""Causes in number formats and arithmetic."""
