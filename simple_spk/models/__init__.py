"""Front end, encoders, embedding head, similarity and momentum encoder."""
