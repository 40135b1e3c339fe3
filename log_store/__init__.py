"""The domain and its storage: partitions as Delta tables, and nothing above them."""
