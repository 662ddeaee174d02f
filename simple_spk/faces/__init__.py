"""Faces: verification over folds, and templates of many images compared and sought."""
