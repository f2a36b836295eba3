import derivatrix as dx

n = dx.dims("n")
d = dx.vector("d", n)
length = dx.scalar("length", "positive")
correlation = dx.function("correlation", [d, length], dx.exp(-((d / length) ** 2)), wrt=[length])
