"""The HTTP service: simple-spk serve."""
