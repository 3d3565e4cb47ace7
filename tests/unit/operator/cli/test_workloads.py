"""Pod templates are checked against the claims that they name."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import pytest
from tests.support.objects import deviceclaim

from adjoin.api import DeviceClaim
from adjoin.cli.documents import Document
from adjoin.cli.workloads import check_workloads

CONTAINERS = "adjoin.dev/containers"


def template(claim: str | None = "job-a", annotations: Mapping[str, str] = {}) -> dict[str, Any]:
    labels = {"app": "x"} | ({"adjoin.dev/claim": claim} if claim is not None else {})
    return {
        "metadata": {"labels": labels, "annotations": dict(annotations), "creationTimestamp": None},
        "spec": {"containers": [{"name": "main"}, {"name": "helper"}], "initContainers": [{"name": "setup"}]},
    }


def workload(kind: str, spec: dict[str, Any], name: str = "w", namespace: str = "team", **meta: Any) -> Document:
    return Document("f", {"kind": kind, "metadata": {"name": name, "namespace": namespace, **meta}, "spec": spec})


def check(*workloads: Document, replicas: int | None = None, namespace: str = "team") -> list[str]:
    claim = DeviceClaim.model_validate(
        deviceclaim(requests={"gpu": 1, "nic": 1}, replicas=replicas, namespace=namespace)
    )
    return check_workloads(workloads, [claim])


def jobset(replicas: int, job: dict[str, Any]) -> dict[str, Any]:
    return {"replicatedJobs": [{"name": "a", "replicas": replicas, "template": {"spec": job}}]}


INDEXED = {"completionMode": "Indexed", "completions": 4, "parallelism": 2, "template": template()}

QUEUE = {"completionMode": "NonIndexed", "parallelism": 3, "template": template()}


@pytest.mark.parametrize(
    ("document", "pods"),
    [
        pytest.param(workload("Deployment", {"template": template()}), 1, id="a Deployment without replicas"),
        pytest.param(workload("Deployment", {"replicas": 3, "template": template()}), 3, id="a Deployment"),
        pytest.param(workload("Deployment", {"replicas": 0, "template": template()}), 0, id="a Deployment of nothing"),
        pytest.param(workload("StatefulSet", {"replicas": 2, "template": template()}), 2, id="a StatefulSet"),
        pytest.param(workload("Job", INDEXED), 4, id="an indexed Job: every completion has its replica"),
        pytest.param(workload("Job", {"parallelism": 2, "completions": 8, "template": template()}), 2, id="a Job"),
        pytest.param(workload("Job", {"parallelism": 3, "template": template()}), 3, id="a work queue"),
        pytest.param(workload("Job", {"completions": 5, "template": template()}), 1, id="a Job, one pod at a time"),
        pytest.param(workload("CronJob", {"jobTemplate": {"spec": INDEXED}}), 4, id="a CronJob"),
        pytest.param(workload("JobSet", jobset(1, INDEXED)), 4, id="a JobSet"),
        pytest.param(
            workload("JobSet", jobset(1, {"parallelism": 3, "template": template()})), 3, id="its Jobs are indexed"
        ),
        pytest.param(workload("JobSet", jobset(2, QUEUE)), 6, id="a JobSet of work queues"),
        pytest.param(workload("Pod", template()["spec"], labels={"adjoin.dev/claim": "job-a"}), 1, id="a pod"),
        pytest.param(workload("Deployment", {"replicas": 9, "template": template(None)}), 0, id="pods without a claim"),
        pytest.param(
            workload(
                "Pod",
                template()["spec"],
                labels={"adjoin.dev/claim": "job-a"},
                ownerReferences=[{"kind": "Job", "name": "w", "controller": True}],
            ),
            0,
            id="a pod of a controller, whose template counts",
        ),
    ],
)
def test_pods_need_as_many_replicas(document: Document, pods: int) -> None:
    assert check(document, replicas=pods) == []
    if pods:
        (problem,) = check(document, replicas=pods - 1)
        assert f"{'1 pod names' if pods == 1 else f'{pods} pods name'} DeviceClaim team/job-a" in problem
        assert problem.endswith("1 would wait")


def test_a_claim_that_follows_its_pods_has_room_for_as_many_as_it_says() -> None:
    obj = deviceclaim()
    obj["spec"]["scaling"] = {"mode": "FollowPods", "maxReplicas": 2}
    claim = DeviceClaim.model_validate(obj)
    assert check_workloads([workload("Deployment", {"replicas": 2, "template": template()})], [claim]) == []
    (problem,) = check_workloads([workload("Deployment", {"replicas": 3, "template": template()})], [claim])
    assert problem.endswith("which has 2 replicas: 1 would wait")


def test_all_users_of_a_claim_count_together() -> None:
    users = [workload("Deployment", {"replicas": 2, "template": template()}, name=name) for name in ("a", "b")]
    assert check(*users, replicas=4) == []
    assert check(*users, replicas=3) == [
        "Deployment team/a, Deployment team/b: 4 pods name DeviceClaim team/job-a, which has 3 replicas: 1 would wait"
    ]


@pytest.mark.parametrize(
    ("given", "words"),
    [
        pytest.param(template("job-b"), "no DeviceClaim team/job-b", id="an unknown claim"),
        pytest.param(template(annotations={CONTAINERS: '{"main": ["gpu"]}'}), "", id="known names"),
        pytest.param(template(annotations={CONTAINERS: '{"setup": ["nic", "gpu"]}'}), "", id="an init container"),
        pytest.param(
            template(annotations={CONTAINERS: '{"mian": ["gpu"]}'}), "no container 'mian'", id="an unknown container"
        ),
        pytest.param(
            template(annotations={CONTAINERS: '{"main": ["gpus"]}'}),
            "no request 'gpus' in the claim; there are gpu, nic",
            id="an unknown request",
        ),
        pytest.param(template(annotations={CONTAINERS: "main"}), "must be JSON", id="no JSON"),
        pytest.param(template(annotations={CONTAINERS: '["main"]'}), "must be JSON", id="another shape"),
        pytest.param(template(annotations={"adjoin.dev/replica": "0"}), "", id="a replica"),
        pytest.param(
            template(annotations={"adjoin.dev/replica": "1"}), "must be 0 to 0", id="a replica beyond the last"
        ),
        pytest.param(template(annotations={"adjoin.dev/replica": "x"}), "must be 0 to 0", id="no number"),
    ],
)
def test_what_a_template_names_must_exist(given: dict[str, Any], words: str) -> None:
    problems = check(workload("Deployment", {"template": given}))
    assert len(problems) == (1 if words else 0)
    assert all(words in problem and problem.startswith("Deployment team/w: ") for problem in problems)


def test_a_claim_of_another_namespace_is_not_meant() -> None:
    (problem,) = check(workload("Deployment", {"template": template()}), namespace="elsewhere")
    assert "no DeviceClaim team/job-a" in problem


def pinned(replica: str) -> dict[str, Any]:
    return template(annotations={"adjoin.dev/replica": replica})


@pytest.mark.parametrize(
    ("documents", "replicas", "words"),
    [
        pytest.param(
            [workload("JobSet", jobset(2, INDEXED))],
            8,
            "JobSet team/w: several pods have index 0 to 3 and name the same replica of DeviceClaim team/job-a, "
            "which serves one pod at a time",
            id="every Job of a JobSet counts from 0",
        ),
        pytest.param(
            [workload("Job", INDEXED, name="a"), workload("Job", INDEXED, name="b")],
            8,
            "Job team/a, Job team/b: several pods have index 0 to 3",
            id="two indexed Jobs on one claim",
        ),
        pytest.param(
            [workload("StatefulSet", {"replicas": 2, "ordinals": {"start": 3}, "template": template()})],
            4,
            "pods of index 4 name replicas that DeviceClaim team/job-a does not have: it has 0 to 3",
            id="a StatefulSet that begins elsewhere",
        ),
        pytest.param(
            [workload("Deployment", {"replicas": 2, "template": pinned("1")})],
            2,
            "several pods have index 1",
            id="pods of one template that all name one replica",
        ),
        pytest.param(
            [
                workload("StatefulSet", {"replicas": 2, "ordinals": {"start": 2}, "template": template()}, name="b"),
                workload("StatefulSet", {"replicas": 2, "template": template()}, name="a"),
            ],
            4,
            "",
            id="two StatefulSets that share a claim",
        ),
        pytest.param(
            [
                workload(
                    "JobSet",
                    {
                        "replicatedJobs": [
                            {"name": name, "template": {"spec": {"template": pinned(replica)}}}
                            for name, replica in (("leader", "0"), ("helper", "1"))
                        ]
                    },
                )
            ],
            2,
            "",
            id="Jobs of a JobSet that say which replica they want",
        ),
    ],
)
def test_pods_that_name_replicas_have_one_each(documents: list[Document], replicas: int, words: str) -> None:
    problems = check(*documents, replicas=replicas)
    assert len(problems) == (1 if words else 0)
    assert all(words in problem for problem in problems)
