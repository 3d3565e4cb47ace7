"""The CEL evaluator of device selectors.

It means what Kubernetes' own evaluator means: the same devices match, the same expressions are refused.
`compile_selector` makes a `Selector` of a text; nothing else is needed from here but the values that devices are
described with.
"""

from adjoin_allocator.cel.device import AttributeScalar, AttributeValue, DeviceView
from adjoin_allocator.cel.errors import CompileError, EvaluationError
from adjoin_allocator.cel.quantity import Quantity
from adjoin_allocator.cel.selector import Selector, compile_selector
from adjoin_allocator.cel.version import Version

__all__ = [
    "AttributeScalar",
    "AttributeValue",
    "CompileError",
    "DeviceView",
    "EvaluationError",
    "Quantity",
    "Selector",
    "Version",
    "compile_selector",
]
