"""What other libraries do with the same work, each in an environment of its own."""
