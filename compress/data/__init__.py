"""Loading data: one file a kind of data set."""
