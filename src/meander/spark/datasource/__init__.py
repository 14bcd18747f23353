"""`format("meander")`: micro-batches in, outputs and state out."""
