"""What others do, and the paper's own algorithms: to compare with, never the default."""
