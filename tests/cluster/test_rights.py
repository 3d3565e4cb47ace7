"""What Adjoin's accounts may not do, proven by requests that the API server denies (field report G13), and by what is
unchanged afterwards. That they may do what they need, every other test proves, since the operator runs as its account.
"""

from __future__ import annotations

from typing import Any

import pytest
from tests.controlplane.client import MERGE_PATCH, ApiFailure, call, tls_context
from tests.support import hardware
from tests.support.installation import ACCOUNT, NAMESPACE, USERNAME, Installation
from tests.support.site import Site, pod
from tests.support.waiting import eventually

pytestmark = pytest.mark.cluster
Request = tuple[str, str, dict[str, Any] | None]

HOOKS = "adjoin-hooks"
TAKEN = {"metadata": {"annotations": {"example.com/taken": "yes"}}}
SECRET = f"/api/v1/namespaces/{NAMESPACE}/secrets/adjoin-webhook-certificates"
# Asks for more than any machine has: its pod is there, and stays as it was made.
PATIENT = {
    "spec": {
        "containers": [{"name": "main", "image": "registry.test/hook:1", "resources": {"requests": {"cpu": "100000"}}}],
    }
}


def named(kind: str, api: str, name: str, **spec: Any) -> dict[str, Any]:
    return {"apiVersion": api, "kind": kind, "metadata": {"name": name}, **spec}


def binding(kind: str, account: str) -> dict[str, Any]:
    """Makes an account administrator, of the cluster or of a namespace."""
    role = {"apiGroup": "rbac.authorization.k8s.io", "kind": "ClusterRole", "name": "cluster-admin"}
    subjects = [{"kind": "ServiceAccount", "name": account, "namespace": NAMESPACE}]
    return named(kind, "rbac.authorization.k8s.io/v1", "taken", roleRef=role, subjects=subjects)


def job(namespace: str) -> Request:
    template = {"spec": {"restartPolicy": "Never", "containers": [{"name": "main", "image": "registry.test/x:1"}]}}
    return (
        "POST",
        f"/apis/batch/v1/namespaces/{namespace}/jobs",
        named("Job", "batch/v1", "taken", spec={"template": template}),
    )


def token_of(account: str) -> Request:
    body = {"apiVersion": "authentication.k8s.io/v1", "kind": "TokenRequest", "spec": {}}
    return "POST", f"/api/v1/namespaces/{NAMESPACE}/serviceaccounts/{account}/token", body


def beyond_the_operator(site: Site, node: str) -> list[Request]:
    """What even the operator may not do: whatever would give it more than its own work needs."""
    rbac = "/apis/rbac.authorization.k8s.io/v1"
    kept = "/api/v1/namespaces/kube-system/secrets"
    return [
        ("PATCH", f"/api/v1/nodes/{node}", TAKEN),
        ("PATCH", f"/api/v1/nodes/{node}/status", TAKEN),
        ("DELETE", f"/api/v1/nodes/{node}", None),
        ("GET", f"/api/v1/nodes/{node}/proxy/pods", None),
        ("POST", f"{site.path('Pod', 'worker')}/exec?command=id", None),
        ("PATCH", f"{site.path('Pod', 'worker')}/status", TAKEN),
        ("POST", site.path("Pod"), pod("taken", "mine")),
        ("DELETE", site.path("DeviceClaim", "mine"), None),
        ("DELETE", site.path("DevicePool", site.namespace), None),
        ("GET", kept, None),
        ("GET", f"/api/v1/namespaces/{NAMESPACE}/secrets", None),
        ("GET", f"/api/v1/namespaces/{site.namespace}/secrets", None),
        job(site.namespace),
        token_of(HOOKS),
        token_of(ACCOUNT),
        ("POST", f"{rbac}/clusterrolebindings", binding("ClusterRoleBinding", ACCOUNT)),
        ("POST", f"{rbac}/namespaces/{NAMESPACE}/rolebindings", binding("RoleBinding", ACCOUNT)),
        ("PATCH", f"{rbac}/clusterroles/adjoin", TAKEN),
        ("PATCH", "/apis/apiextensions.k8s.io/v1/customresourcedefinitions/deviceclaims.adjoin.dev", TAKEN),
        ("DELETE", "/apis/admissionregistration.k8s.io/v1/validatingadmissionpolicies/adjoin-status", None),
        ("POST", "/apis/admissionregistration.k8s.io/v1/validatingadmissionpolicybindings", {}),
    ]


def beyond_a_hook(site: Site, node: str) -> list[Request]:
    """All of that, and also whatever the operator does with its own account."""
    claim, pool = site.path("DeviceClaim", "mine"), site.path("DevicePool", site.namespace)
    (given,) = (each["metadata"]["name"] for each in site.all("ResourceClaim"))
    lease = f"/apis/coordination.k8s.io/v1/namespaces/{NAMESPACE}/leases/adjoin"
    return [
        *beyond_the_operator(site, node),
        ("GET", f"/api/v1/nodes/{node}", None),
        ("GET", "/api/v1/pods", None),
        ("GET", claim, None),
        ("PATCH", claim, TAKEN),
        ("PATCH", f"{claim}/status", {"status": {"phase": "Ready"}}),
        ("GET", pool, None),
        ("PATCH", pool, {"metadata": {"annotations": {"adjoin.dev/release-quarantine": "[]"}}}),
        ("PATCH", f"{pool}/status", {"status": {"quarantined": []}}),
        ("GET", site.path("ResourceClaim", given), None),
        ("PATCH", f"{site.path('ResourceClaim', given)}/status", {"status": {"allocation": None}}),
        ("DELETE", site.path("ResourceClaim", given), None),
        ("GET", site.path("ResourceSlice"), None),
        ("POST", site.path("ResourceSlice"), {}),
        ("POST", site.path("DeviceTaintRule"), {}),
        ("PATCH", site.path("Pod", "worker"), TAKEN),
        ("DELETE", site.path("Pod", "worker"), None),
        ("POST", f"{site.path('Pod', 'worker')}/eviction", named("Eviction", "policy/v1", "worker")),
        ("GET", SECRET, None),
        ("GET", f"/api/v1/namespaces/{NAMESPACE}/configmaps", None),
        ("GET", f"/apis/batch/v1/namespaces/{NAMESPACE}/jobs", None),
        job(NAMESPACE),
        ("GET", lease, None),
        ("PATCH", lease, {"spec": {"holderIdentity": "taken"}}),
        ("PATCH", "/apis/admissionregistration.k8s.io/v1/validatingwebhookconfigurations/adjoin", TAKEN),
    ]


@pytest.fixture
def served(site: Site) -> Site:
    """A claim whose pod runs."""
    site.machines(hardware.two_roots)
    site.pool()
    site.ask("mine", {"gpu": 1})
    site.create(pod("worker", "mine"))
    site.wait_running("worker")
    site.wait_phase("mine", "InUse")
    return site


@pytest.mark.parametrize(("account", "beyond"), [(ACCOUNT, beyond_the_operator), (HOOKS, beyond_a_hook)])
def test_g13_what_an_account_is_not_for_is_denied(served: Site, account: str, beyond: Any) -> None:
    """With a token of the account, as a pod of its would have it. Reads are among the requests: a hook learns nothing
    of other tenants either."""
    plane = served.plane
    context = tls_context(plane.ca_data)
    headers = {"Authorization": f"Bearer {plane.token_for(NAMESPACE, account)}"}

    def ask(method: str, path: str, body: dict[str, Any] | None) -> Any:
        kind = MERGE_PATCH if method == "PATCH" else "application/json"
        return call(plane.url, context, method, path, body, content_type=kind, headers=headers)

    review = named("SelfSubjectReview", "authentication.k8s.io/v1", "")
    who = ask("POST", "/apis/authentication.k8s.io/v1/selfsubjectreviews", review)["status"]["userInfo"]["username"]
    assert who == f"system:serviceaccount:{NAMESPACE}:{account}"
    node = served.claim("mine")["status"]["allocation"]["replicas"][0]["node"]
    allowed = []
    for request in beyond(served, node):
        try:
            ask(*request)
        except ApiFailure as refused:
            if refused.status != 403 or "cannot" not in str(refused):
                allowed.append(f"{refused}")
        else:
            allowed.append(" ".join(request[:2]))
    assert allowed == []
    # Nothing of it has happened.
    for path in (f"/api/v1/nodes/{node}", served.path("Pod", "worker"), served.path("DeviceClaim", "mine")):
        assert "example.com/taken" not in plane.request("GET", path)["metadata"].get("annotations", {})
    assert served.claim("mine")["status"]["phase"] == "InUse"


def test_g13_nobody_acts_as_another(served: Site) -> None:
    """Neither account may say that it is somebody else."""
    plane = served.plane
    for account in (ACCOUNT, HOOKS):
        headers = {
            "Authorization": f"Bearer {plane.token_for(NAMESPACE, account)}",
            "Impersonate-User": USERNAME if account == HOOKS else "system:admin",
        }
        with pytest.raises(ApiFailure) as refused:
            call(plane.url, tls_context(plane.ca_data), "GET", "/api/v1/nodes", headers=headers)
        assert refused.value.status == 403
        assert "impersonate" in str(refused.value)


def test_g13_a_hooks_pod_has_no_token_at_all(site: Site, adjoin: Installation) -> None:
    """What its account may not do it cannot even ask for: nothing of the account is mounted into it."""
    site.machines(hardware.two_roots)
    site.pool(lifecycle={"init": [{"name": "verify", "template": PATIENT}]})
    site.ask("mine", {"gpu": 1})

    def hooks() -> list[dict[str, Any]]:
        listed = site.plane.request("GET", f"/api/v1/namespaces/{NAMESPACE}/pods?labelSelector=adjoin.dev/hook")
        return [each for each in listed["items"] if site.namespace in str(each["spec"]["affinity"])]

    (made,) = eventually(hooks, bool, what="the hook's pod")
    assert made["spec"]["serviceAccountName"] == HOOKS
    assert [each for each in made["spec"].get("volumes", []) if "projected" in each or "secret" in each] == []
    assert [each for container in made["spec"]["containers"] for each in container.get("volumeMounts", [])] == []
