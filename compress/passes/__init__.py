"""Passes: one file (or folder) a pass."""
