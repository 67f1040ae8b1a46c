"""FP16 in the file: what it cannot hold, the conversion, and the check of what it does to the outputs."""
