"""First lines of the docstrings of public functions."""

SUMMARIES = {
    "value": "The value.",
    "vjp": "The cotangents of the inputs, given the cotangent of the value.",
    "jvp": "The tangent of the value, given the tangents of the inputs.",
    "jacobian": "The Jacobian J[out..., in...], of shape (*out.shape, *in.shape).",
    "gradient": "The gradient.",
    "value_and_gradient": "The value and the gradient.",
    "hessian": "The Hessian H[in..., in...].",
    "hvp": "The Hessian times the tangents of the inputs.",
    "jacobian_operator": "The Jacobian as a linear map, an array only where it is asked for.",
    "hessian_operator": "The Hessian as a linear map, an array only where it is asked for.",
}
