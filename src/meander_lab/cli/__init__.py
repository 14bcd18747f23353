"""The commands of the laboratory: `bench`, `chaos`, `soak`, `experiment`."""
