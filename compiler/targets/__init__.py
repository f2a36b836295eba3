"""What a target has: which functions of `templates/support` compute what."""
