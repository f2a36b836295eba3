"""The intermediate representation: tensor expressions, their sizes, shapes and values.

`nodes` are what expressions are made of; `arrays` wraps them for users; `operation` is the record
of an operation that is no sum, product or elementwise function.
"""
