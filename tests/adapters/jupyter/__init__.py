"""What needs a Jupyter kernel."""
