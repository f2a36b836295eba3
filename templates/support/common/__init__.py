"""Support for modules of every target: public functions, checks of arguments, operators."""
