"""What simple-spk doctor checks: the installation, the data, and what training needs."""
