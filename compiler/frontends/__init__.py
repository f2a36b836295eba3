"""How functions are declared: NumPy's and SymPy's names, text, equations; all make nodes."""
