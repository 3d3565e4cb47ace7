"""What the type of a value certainly is when the program runs.

The checker's types are CEL's: they say what an expression may be used as. A type that it found out from a use, or for
part of a value of unknown type, is no promise: `device.attributes['d'].list.first().value() + 1` passes as an int and
may be a string. Whoever leaves out a look at a value must ask here.
"""

from __future__ import annotations

from adjoin_allocator.cel.syntax import Call, Comprehension, Expr, Ident, ListNode, Literal, Macro, Select
from adjoin_allocator.cel.types import BOOL, DEVICE, DYN, QUANTITY, STRING, Type, contains_dyn


def certain_type(node: Expr) -> Type:
    """The node's type if its value can have no other, else dyn."""
    if isinstance(node, Literal):
        return node.type
    if isinstance(node, Select):
        return _field_type(node)
    if isinstance(node, Call):
        return _result_type(node)
    if isinstance(node, ListNode):
        certain = not node.optional and all(certain_type(element) == element.type for element in node.elements)
        return node.type if certain and not contains_dyn(node.type) else DYN
    if isinstance(node, Comprehension) and node.macro in (Macro.ALL, Macro.EXISTS, Macro.EXISTS_ONE):
        return BOOL
    return DYN


def _field_type(node: Select) -> Type:
    if node.test:
        return BOOL
    if node.qualified or node.optional:
        return DYN
    if node.operand.type == DEVICE:
        return node.type if node.type in (STRING, BOOL) else DYN
    return node.type if node.type == QUANTITY and _is_capacity(node.operand) else DYN


def _result_type(node: Call) -> Type:
    if node.function == "_[_]":
        return node.type if node.type == QUANTITY and _is_capacity(node.args[0]) else DYN
    results = {overload.result for overload in node.overloads}
    if len(results) != 1:
        return DYN
    result = results.pop()
    return DYN if contains_dyn(result) else result


def _is_capacity(node: Expr) -> bool:
    """Whether it is `device.capacity[…]` as written, one domain's quantities."""
    if isinstance(node, Call) and node.function == "_[_]":
        node = node.args[0]
    elif isinstance(node, Select) and not node.optional and not node.test:
        node = node.operand
    else:
        return False
    if not isinstance(node, Select) or node.optional or node.field != "capacity":
        return False
    return isinstance(node.operand, Ident) and node.operand.name == ".device"
