"""Exporters: from one form to another."""
