"""Evaluators: what is measured of an artifact."""
