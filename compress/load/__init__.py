"""Loading a model: one file a kind of input."""
