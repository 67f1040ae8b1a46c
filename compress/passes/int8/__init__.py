"""Static INT8 quantization."""
