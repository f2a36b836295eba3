"""What needs pyright."""
