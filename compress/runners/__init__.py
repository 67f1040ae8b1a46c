"""Runners: one file a runtime."""
