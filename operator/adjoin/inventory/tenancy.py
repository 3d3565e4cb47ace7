"""Who may claim from a pool, as which tenant.

In come a pool's tenancy and labels of namespaces; out go the tenant of a namespace and whether it may claim at all.
Quotas and weights are the allocator's; nothing here counts anything.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

from adjoin.api.common import LabelSelector
from adjoin.api.pool_policy import Tenancy
from adjoin.inventory.pools import matches_labels
from adjoin_allocator.model import Tenant


@dataclass(frozen=True, slots=True, eq=False)
class TenancyRules:
    """A pool's tenancy, prepared for looking up.

    Attributes:
        selector: Namespaces that may claim; None for every one.
        default: Tenant of namespaces that are in none, or "".
        tenant_by_namespace: Of namespaces that stand in a tenant.
    """

    selector: LabelSelector | None = None
    default: str = ""
    tenant_by_namespace: Mapping[str, str] = field(default_factory=dict)

    def tenant_of(self, namespace: str) -> str:
        """The tenant whose usage counts: one of the pool's, or one of the namespace's own, which has no quota."""
        return self.tenant_by_namespace.get(namespace) or self.default or own_tenant(namespace)

    def allows(self, labels: Mapping[str, str]) -> bool:
        """Whether a namespace with these labels may claim."""
        return matches_labels(self.selector, labels)


def own_tenant(namespace: str) -> str:
    """Name of the tenant that a namespace is by itself; no tenant of a pool can have it."""
    return f"namespace/{namespace}"


EVERYBODY = TenancyRules()


def prepare_tenancy(tenancy: Tenancy | None) -> TenancyRules:
    """The rules of a pool; absent, everybody may claim and is a tenant of their own."""
    if tenancy is None:
        return EVERYBODY
    return TenancyRules(
        selector=tenancy.namespace_selector,
        default=tenancy.default or "",
        tenant_by_namespace={namespace: tenant.name for tenant in tenancy.tenants for namespace in tenant.namespaces},
    )


def tenants_of(tenancy: Tenancy | None) -> Mapping[str, Tenant]:
    """A pool's tenants as the allocator counts them."""
    if tenancy is None:
        return {}
    return {
        tenant.name: Tenant(tenant.name, dict(tenant.quota), dict(tenant.borrowing), tenant.weight)
        for tenant in tenancy.tenants
    }
