import derivatrix as dx

n = dx.dims("n")
w = dx.vector("w", n)
