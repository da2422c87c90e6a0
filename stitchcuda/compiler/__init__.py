"""The deterministic compiler behind the built-in engineer: capture, partition, emit CUDA."""
