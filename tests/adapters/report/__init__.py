"""What needs latex2mathml and pygments."""
