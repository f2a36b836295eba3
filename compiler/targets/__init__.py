"""The targets: for each, the functions of `templates/support` that compute operators."""
