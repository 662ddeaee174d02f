"""Atomic files and locks, bounded input files, YAML read as data, arrays and tensors."""
