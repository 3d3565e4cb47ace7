"""The charts: helm accepts them, the API server accepts what they render, and nothing in them is more than is
needed."""

from __future__ import annotations

import ssl
from typing import Any
from urllib.parse import urlsplit

import pytest
import yaml
from tests.controlplane.client import ApiFailure, call
from tests.support.installation import NAMESPACE, ROOT, Installation

from adjoin.admission.endpoint import ASK_SECONDS

pytestmark = pytest.mark.cluster
CHARTS = ("adjoin-crds", "adjoin")


def rendered(installation: Installation, chart: str, *options: str) -> list[dict[str, Any]]:
    """The objects that a chart renders."""
    text = installation.helm("template", "adjoin", str(ROOT / "helm" / chart), "-n", NAMESPACE, *options)
    return [obj for obj in yaml.safe_load_all(text) if obj]


@pytest.mark.parametrize("chart", CHARTS)
def test_helm_lint_has_nothing_to_say(installation: Installation, chart: str) -> None:
    """Strict: warnings fail."""
    assert "0 chart(s) failed" in installation.helm("lint", "--strict", str(ROOT / "helm" / chart))


@pytest.mark.parametrize(
    "options",
    [
        pytest.param((), id="as it comes"),
        pytest.param(("--set", "webhook.url=https://10.0.0.1:9443"), id="operator outside the cluster"),
        pytest.param(
            ("--set", "replicas=1", "--set", "flowSchema.enabled=false", "--set", "tolerations[0].operator=Exists"),
            id="one replica, no flow schema, tolerations",
        ),
    ],
)
def test_the_api_server_accepts_what_the_chart_renders(installation: Installation, options: tuple[str, ...]) -> None:
    """Server-side dry run of every object, strict about unknown fields."""
    # Another release: what is installed here must not mix with what is tried.
    text = installation.helm("template", "other", str(ROOT / "helm/adjoin"), "-n", NAMESPACE, *options)
    installation.plane.kubectl(
        "apply", "--server-side", "--dry-run=server", "--validate=strict", "--force-conflicts", "-f", "-", stdin=text
    )


def test_a_value_that_does_not_exist_is_refused(installation: Installation) -> None:
    """A mistyped value is an error, not a default."""
    with pytest.raises(RuntimeError, match="replcas"):
        rendered(installation, "adjoin", "--set", "replcas=3")


def test_g7_no_wildcard_no_escalation_and_no_secret_but_its_own(installation: Installation) -> None:
    """What the operator could do if it were taken over is what the chart grants."""
    for obj in rendered(installation, "adjoin"):
        for rule in obj.get("rules", []) if obj["kind"] in ("Role", "ClusterRole") else []:
            assert "*" not in [*rule["apiGroups"], *rule["resources"], *rule["verbs"]]
            assert not {"escalate", "bind", "impersonate"} & set(rule["verbs"])
            assert not {"pods/exec", "pods/attach", "nodes/proxy", "serviceaccounts/token"} & set(rule["resources"])
            if "secrets" in rule["resources"] and rule["verbs"] != ["create"]:
                assert obj["kind"] == "Role"
                assert rule["resourceNames"] == ["adjoin-webhook-certificates"]


def test_the_pod_of_the_chart_meets_the_restricted_standard(installation: Installation) -> None:
    """The namespace may enforce it."""
    (deployment,) = (obj for obj in rendered(installation, "adjoin") if obj["kind"] == "Deployment")
    name = "restricted"
    labels = {"pod-security.kubernetes.io/enforce": "restricted"}
    installation.plane.request("POST", "/api/v1/namespaces", {"metadata": {"name": name, "labels": labels}})
    template = deployment["spec"]["template"]
    pod = {**template["spec"], "serviceAccountName": "default"}
    pod.pop("priorityClassName")
    # A dry run passes admission and stores nothing.
    installation.plane.kubectl(
        "create", "--dry-run=server", "-n", name, "-f", "-",
        stdin=yaml.safe_dump({"apiVersion": "v1", "kind": "Pod", "metadata": {"name": "adjoin"}, "spec": pod}),
    )  # fmt: skip


def test_webhook_paths_are_the_endpoints_routes_and_other_paths_are_404(adjoin: Installation) -> None:
    """A mistyped path refuses (failurePolicy Fail) instead of letting a pod through without its gate."""
    urls = [
        urlsplit(hook["clientConfig"]["url"]).path
        for obj in rendered(adjoin, "adjoin", "--set", f"webhook.url={adjoin.webhook_url}")
        if obj["kind"].endswith("WebhookConfiguration")
        for hook in obj["webhooks"]
    ]
    service = [
        hook["clientConfig"]["service"]["path"]
        for obj in rendered(adjoin, "adjoin")
        if obj["kind"].endswith("WebhookConfiguration")
        for hook in obj["webhooks"]
    ]
    assert urls == service == ["/mutate-pod", "/mutate-pod", "/mutate-adjoin", "/validate-adjoin"]
    context = ssl.create_default_context()
    context.check_hostname, context.verify_mode = False, ssl.CERT_NONE
    for path in urls:
        # An empty review is no review: the route exists and refuses it.
        with pytest.raises(ApiFailure) as refused:
            call(adjoin.webhook_url, context, "POST", path, {})
        assert refused.value.status == 400
    for path in ("/", "/mutate-pods", "/mutate-pod/", "/validate"):
        with pytest.raises(ApiFailure) as missing:
            call(adjoin.webhook_url, context, "POST", path, {})
        assert missing.value.status == 404


def test_the_operator_fills_in_its_certificate_authority(adjoin: Installation) -> None:
    """Self-made certificates reach the webhook configurations, and only there."""
    for kind in ("mutatingwebhookconfigurations", "validatingwebhookconfigurations"):
        found = adjoin.plane.request("GET", f"/apis/admissionregistration.k8s.io/v1/{kind}/adjoin")
        assert all(hook["clientConfig"].get("caBundle") for hook in found["webhooks"])


def test_d14_admission_has_three_seconds_at_most_and_sees_only_pods_that_ask(installation: Installation) -> None:
    """Its time is added to every call that it sees."""
    hooks = [
        hook
        for obj in rendered(installation, "adjoin")
        if obj["kind"].endswith("WebhookConfiguration")
        for hook in obj["webhooks"]
    ]
    assert all(ASK_SECONDS < hook["timeoutSeconds"] <= 3 for hook in hooks)
    for hook in hooks:
        if any(resource.startswith("pods") for rule in hook["rules"] for resource in rule["resources"]):
            expressions = hook["objectSelector"]["matchExpressions"]
            assert expressions == [{"key": "adjoin.dev/claim", "operator": "Exists"}]
    with pytest.raises(RuntimeError, match="timeoutSeconds"):
        rendered(installation, "adjoin", "--set", "webhook.timeoutSeconds=4")
