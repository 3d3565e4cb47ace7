"""The pods that the workloads of an input are going to make, for claims that follow their pods.

In come workloads and a view; out go pods that are in the view as if they had been made a moment ago. A pod that is in
the input counts in the place of one that its template would make. Claims of fixed size want what they want, whatever
their pods do.
"""

from __future__ import annotations

from collections.abc import Iterable

from adjoin.api.names import ANNOTATION_REPLICA, LABEL_CLAIM
from adjoin.cache import View
from adjoin.cli.documents import Document
from adjoin.cli.workloads import Template, templates
from adjoin.facts import PodFacts, read_pod
from adjoin.lifecycle import asks, follows_pods


def expected_pods(workloads: Iterable[Document], view: View) -> dict[str, PodFacts]:
    """Pods that are still to come, by a key of their own."""
    following = {
        (claim.meta.namespace, claim.meta.name): claim.claim.spec.scaling.max_replicas or 0
        for claim in view.claims.values()
        if follows_pods(claim)
    }
    if not following:
        return {}
    there: dict[tuple[str, str], list[PodFacts]] = {}
    for pod in view.pods.values():
        if pod.controlled and asks(pod):
            there.setdefault((pod.meta.namespace, pod.claim), []).append(pod)
    made: dict[str, PodFacts] = {}
    for document in workloads:
        if document.kind == "Pod":
            continue
        for template in templates(document):
            labels = template.metadata.get("labels")
            name = labels.get(LABEL_CLAIM) if isinstance(labels, dict) else None
            named = (template.namespace, str(name))
            if name is None or named not in following:
                continue
            # More than the claim has room for would wait; how many that are is told with the templates.
            for pod in _pods(template, str(name), min(template.alive, following[named]), there.get(named, [])):
                made[pod.meta.uid] = pod
    return made


def _pods(template: Template, claim: str, number: int, there: list[PodFacts]) -> Iterable[PodFacts]:
    """Those of one template that are not there; each that is there is taken off the list."""
    indexes: Iterable[int | None] = template.names[:number] if template.names else [None] * number
    for place, index in enumerate(indexes):
        known = next((pod for pod in there if index is None or pod.replica == index), None)
        if known is not None:
            there.remove(known)
            continue
        key = f"{template.owner}/{place}"
        annotations = {ANNOTATION_REPLICA: str(index)} if index is not None else {}
        meta = {"uid": key, "name": key, "namespace": template.namespace, "annotations": annotations}
        pod = read_pod({"metadata": {**meta, "labels": {LABEL_CLAIM: claim}}})
        if pod is not None:
            yield pod
