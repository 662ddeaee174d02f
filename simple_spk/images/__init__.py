"""Images instead of recordings, on the same loss, queue, moving average and training step."""
