"""What needs the programs of the adapters: `.ci/run` runs it in an environment with them."""
