"""Hooks that observe forward and backward passes."""
