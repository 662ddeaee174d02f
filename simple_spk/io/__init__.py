"""Files that are whole or absent, YAML read as data, tensors from PyTorch files."""
