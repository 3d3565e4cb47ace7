"""CEL's functions by library: what Kubernetes 1.37 offers to a device selector, with signatures, order of overloads
and code.

Every module here offers `FUNCTIONS`. Comes in: runtime values of the declared types. Goes out: a value or
`EvaluationError`.
"""
