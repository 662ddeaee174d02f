"""Atomic files and locks, YAML read as data, tensors of PyTorch files."""
