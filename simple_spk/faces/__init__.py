"""Face recognition: encoders, alignment, augmentation, and the files that face data comes in."""
