"""Checks of the installation, the data and the training setup."""
