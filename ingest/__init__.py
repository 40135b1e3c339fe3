"""The write side: decode, partition, validate, accumulate, append."""
