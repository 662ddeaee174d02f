"""Faces: files and alignment, augmentation, encoders; verification over folds, templates, 1:N."""
