"""The authorizer that admission rules have and device selectors have not.

Kubernetes declares its methods for selectors too. No value of its types can exist here, but a call on a value of
unknown type compiles, and fails on every device. The signatures are declared so that such an expression means the same
here.
"""

from __future__ import annotations

from typing import Final

from adjoin_allocator.cel.declarations import Function, Overload, member
from adjoin_allocator.cel.types import BOOL, STRING, STRUCT, Type
from adjoin_allocator.cel.values import no_overload

_PREFIX: Final = "kubernetes.authorization."
_AUTHORIZER: Final = Type(STRUCT, f"{_PREFIX}Authorizer")
_PATH: Final = Type(STRUCT, f"{_PREFIX}PathCheck")
_GROUP: Final = Type(STRUCT, f"{_PREFIX}GroupCheck")
_RESOURCE: Final = Type(STRUCT, f"{_PREFIX}ResourceCheck")
_DECISION: Final = Type(STRUCT, f"{_PREFIX}Decision")


def _method(id_: str, receiver: Type, texts: int, result: Type) -> Overload:
    def never(*values: object) -> object:
        raise no_overload(id_, *values)

    return member(id_, (receiver, *[STRING] * texts), result, never)


FUNCTIONS: Final = (
    Function("path", (_method("authorizer_path", _AUTHORIZER, 1, _PATH),)),
    Function("group", (_method("authorizer_group", _AUTHORIZER, 1, _GROUP),)),
    Function("serviceAccount", (_method("authorizer_serviceaccount", _AUTHORIZER, 2, _AUTHORIZER),)),
    Function("resource", (_method("groupcheck_resource", _GROUP, 1, _RESOURCE),)),
    Function("subresource", (_method("resourcecheck_subresource", _RESOURCE, 1, _RESOURCE),)),
    Function("namespace", (_method("resourcecheck_namespace", _RESOURCE, 1, _RESOURCE),)),
    Function("name", (_method("resourcecheck_name", _RESOURCE, 1, _RESOURCE),)),
    Function(
        "check",
        (
            _method("pathcheck_check", _PATH, 1, _DECISION),
            _method("resourcecheck_check", _RESOURCE, 1, _DECISION),
        ),
    ),
    Function("errored", (_method("decision_errored", _DECISION, 0, BOOL),)),
    Function("error", (_method("decision_error", _DECISION, 0, STRING),)),
    Function("allowed", (_method("decision_allowed", _DECISION, 0, BOOL),)),
    Function("reason", (_method("decision_reason", _DECISION, 0, STRING),)),
    Function("fieldSelector", (_method("authorizer_fieldselector", _RESOURCE, 1, _RESOURCE),)),
    Function("labelSelector", (_method("authorizer_labelselector", _RESOURCE, 1, _RESOURCE),)),
)
