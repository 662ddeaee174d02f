"""What the image recipes share."""
