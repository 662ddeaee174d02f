"""What image recipes share: tables, batches, encoders, embeddings and retrieval."""
