"""Objects of our kinds that are refused, each with where and why: one table for `validate` and for a real API server.

Comes in: nothing. Goes out: complete manifests, made fresh by each builder, and `Case` values that name a field and a
part of what is said. `server` is what the API server alone says (schema and rules of the CRD); a case without it needs
Adjoin's own admission.
"""

from __future__ import annotations

import copy
from dataclasses import dataclass
from typing import Any

Manifest = dict[str, Any]


@dataclass(frozen=True, slots=True)
class Case:
    """One object that is refused.

    Attributes:
        id: A sentence.
        obj: The object.
        path: The field that `validate` blames.
        says: Part of what `validate` says.
        server: Part of what the API server says by the CRD alone; None when the CRD cannot tell.
        old: The object before, when the change is what is refused.
    """

    id: str
    obj: Manifest
    path: str
    says: str
    server: str | None
    old: Manifest | None = None


def claim(name: str = "job-a", **spec: Any) -> Manifest:
    """A DeviceClaim for one GPU and one NIC, but for what is given."""
    wanted = {"requests": [{"name": "gpu"}, {"name": "nic"}], **spec}
    return {
        "apiVersion": "adjoin.dev/v1alpha1",
        "kind": "DeviceClaim",
        "metadata": {"name": name},
        "spec": copy.deepcopy({key: value for key, value in wanted.items() if value is not None}),
    }


def pool(name: str = "training", **spec: Any) -> Manifest:
    """A DevicePool of GPUs and NICs, but for what is given."""
    wanted = {
        "devices": [
            {"name": "gpu", "type": "GPU", "source": {"resourceSlices": {"driver": "gpu.nvidia.com"}}},
            {"name": "nic", "type": "RDMA", "source": {"resourceSlices": {"driver": "dra.net"}}},
        ],
        **spec,
    }
    return {
        "apiVersion": "adjoin.dev/v1alpha1",
        "kind": "DevicePool",
        "metadata": {"name": name},
        "spec": copy.deepcopy({key: value for key, value in wanted.items() if value is not None}),
    }


def share(name: str = "quarter", **spec: Any) -> Manifest:
    """A DeviceShare of time slots, but for what is given."""
    wanted = {
        "poolRef": {"name": "inference"},
        "device": "gpu",
        "mode": "TimeSliced",
        "timeSliced": {"slots": 4},
        **spec,
    }
    return {
        "apiVersion": "adjoin.dev/v1alpha1",
        "kind": "DeviceShare",
        "metadata": {"name": name},
        "spec": copy.deepcopy({key: value for key, value in wanted.items() if value is not None}),
    }


def static(*devices: Manifest) -> Manifest:
    """A pool with these devices on one node."""
    source = {"static": {"nodes": [{"name": "n1", "devices": list(devices)}]}}
    return pool(devices=[{"name": "gpu", "type": "GPU", "source": source}])


def _line(**line: Any) -> Manifest:
    return claim(affinity=[{"requests": ["gpu", "nic"], **line}])


def _request(**request: Any) -> Manifest:
    return claim(requests=[{"name": "gpu", **request}])


def _device(**device: Any) -> Manifest:
    slices = {"resourceSlices": {"driver": "gpu.nvidia.com"}}
    return pool(devices=[{"name": "gpu", "type": "GPU", "source": slices, **device}])


def _tenancy(**tenancy: Any) -> Manifest:
    return pool(tenancy=tenancy)


def _hook(**hook: Any) -> Manifest:
    return {"name": "verify", "template": {"spec": {"containers": []}}, **hook}


_SHARED = {"name": "slice", "memory": "8Gi"}

CLAIM_CASES = (
    Case("count 0", _request(count=0), "spec.requests[0].count", "at least 1", "greater than or equal to 1"),
    Case("negative count", _request(count=-2), "spec.requests[0].count", "at least 1", "greater than or equal to 1"),
    Case(
        "count beyond every node", _request(count=4097), "spec.requests[0].count", "at most 4096", "less than or equal"
    ),
    Case("count as text", _request(count="8"), "spec.requests[0].count", "whole number", "must be of type integer"),
    Case("half a device", _request(count=0.5), "spec.requests[0].count", "whole number", "must be of type integer"),
    Case(
        "both count and all",
        _request(count=8, all=True),
        "spec.requests[0].count",
        "count 8 beside all: true",
        "count 8 beside all: true",
    ),
    Case(
        "unknown request name in affinity",
        claim(affinity=[{"requests": ["gpu", "nik"], "scope": "PCIeRoot"}]),
        "spec.affinity[0].requests[1]",
        "the claim's requests are gpu, nic",
        'no request is named nik; the requests are ["gpu", "nic"]',
    ),
    Case(
        "duplicate request names",
        claim(requests=[{"name": "gpu"}, {"name": "gpu", "count": 2}]),
        "spec.requests[1].name",
        "the same as in spec.requests[0]",
        "Duplicate value",
    ),
    Case(
        "a scope on one device",
        claim(affinity=[{"requests": ["gpu"], "scope": "NVLink", "policy": "Required"}]),
        "spec.affinity[0].scope",
        "a scope on one device",
        "a scope on one device: gpu has count 1",
    ),
    Case(
        "a scope on one device, whichever alternative",
        claim(
            requests=[{"name": "gpu", "firstOf": [{"name": "whole", "count": 1}, {"name": "half", "share": _SHARED}]}],
            affinity=[{"requests": ["gpu"], "scope": "NUMANode"}],
        ),
        "spec.affinity[0].scope",
        "a scope on one device",
        "a scope on one device: gpu has count 1",
    ),
    Case(
        "a request twice in one line",
        claim(affinity=[{"requests": ["gpu", "gpu"], "scope": "PCIeRoot"}]),
        "spec.affinity[0].requests",
        "only once",
        'only once in a line, found ["gpu", "gpu"]',
    ),
    Case(
        "a line over nothing",
        claim(affinity=[{"requests": [], "scope": "Node"}]),
        "spec.affinity[0].requests",
        "1",
        "at least 1",
    ),
    Case(
        "neither scope nor attribute",
        _line(),
        "spec.affinity[0]",
        "exactly one of scope and attribute",
        "exactly one of",
    ),
    Case(
        "both scope and attribute",
        _line(scope="PCIeRoot", attribute="dra.net/rail", policy="Match"),
        "spec.affinity[0]",
        "exactly one of scope and attribute",
        "exactly one of scope and attribute",
    ),
    Case(
        "an attribute without policy",
        _line(attribute="dra.net/rail"),
        "spec.affinity[0].policy",
        "attribute dra.net/rail needs a policy: Match or Distinct",
        "attribute dra.net/rail needs a policy: Match or Distinct",
    ),
    Case(
        "an attribute that is preferred",
        _line(attribute="numaNode", policy="Preferred"),
        "spec.affinity[0].policy",
        "policy Preferred does not go with an attribute",
        "policy Preferred does not go with an attribute; use Match or Distinct",
    ),
    Case(
        "a scope that must match",
        _line(scope="PCIeRoot", policy="Match"),
        "spec.affinity[0].policy",
        "policy Match does not go with a scope",
        "policy Match does not go with a scope; use Required or Preferred",
    ),
    Case(
        "over beside a scope",
        _line(scope="PCIeRoot", over="Replica"),
        "spec.affinity[0].over",
        "over Replica is for attributes",
        "over Replica is for attributes",
    ),
    Case(
        "a scope that does not exist",
        _line(scope="PCIeSwich"),
        "spec.affinity[0].scope",
        "did you mean PCIeSwitch?",
        'supported values: "NVLink", "PCIeSwitch"',
    ),
    Case(
        "an attribute that is no name",
        _line(attribute="rail of the nic", policy="Match"),
        "spec.affinity[0].attribute",
        "an attribute name such as",
        "should match",
    ),
    Case("no request at all", claim(requests=[]), "spec.requests", "at least one request", "at least one request"),
    Case("requests left out", claim(requests=None), "spec.requests", "at least one request", "at least one request"),
    Case(
        "a request without name",
        claim(requests=[{"count": 1}]),
        "spec.requests[0].name",
        "is required",
        "Required value",
    ),
    Case(
        "a request name that is no DNS label",
        claim(requests=[{"name": "GPU 1"}]),
        "spec.requests[0].name",
        "a DNS label",
        "should match",
    ),
    Case("negative replicas", claim(replicas=-1), "spec.replicas", "at least 0", "greater than or equal to 0"),
    Case(
        "more devices than a status holds",
        claim(requests=[{"name": "gpu", "count": 8}, {"name": "nic", "count": 8}], replicas=257),
        "spec",
        "257 replicas of 16 devices are more than the 4096 devices",
        "257 replicas of 16 devices are more than the 4096 devices",
    ),
    Case(
        "all of the node, too often",
        claim(requests=[{"name": "gpu", "all": True}], replicas=129),
        "spec",
        "129 replicas of 32 devices",
        "129 replicas of 32 devices",
    ),
    Case(
        "the largest alternative, too often",
        claim(
            requests=[{"name": "gpu", "firstOf": [{"name": "a", "count": 2}, {"name": "b", "count": 9}]}], replicas=456
        ),
        "spec",
        "456 replicas of 9 devices",
        "456 replicas of 9 devices",
    ),
    Case(
        "pods that follow, too often",
        claim(requests=[{"name": "gpu", "count": 9}], scaling={"mode": "FollowPods", "maxReplicas": 456}),
        "spec",
        "456 replicas of 9 devices",
        "456 replicas of 9 devices",
    ),
    Case(
        "min > replicas",
        claim(gang={"minReplicas": 5}, replicas=4),
        "spec.gang.minReplicas",
        "minReplicas 5 is more than replicas 4",
        "minReplicas 5 is more than replicas 4",
    ),
    Case(
        "min > replicas that are absent",
        claim(gang={"minReplicas": 2}),
        "spec.gang.minReplicas",
        "minReplicas 2 is more than replicas 1",
        "minReplicas 2 is more than replicas 1",
    ),
    Case(
        "a gang of nobody", claim(gang={}, replicas=0), "spec.replicas", "at least one replica", "at least one replica"
    ),
    Case(
        "gang of 0", claim(gang={"minReplicas": 0}), "spec.gang.minReplicas", "at least 1", "greater than or equal to 1"
    ),
    Case(
        "pods that follow beside replicas",
        claim(scaling={"mode": "FollowPods", "maxReplicas": 4}, replicas=2),
        "spec",
        "leave out replicas and gang",
        "leave out replicas and gang",
    ),
    Case(
        "pods that follow beside a gang",
        claim(scaling={"mode": "FollowPods", "maxReplicas": 4}, gang={}),
        "spec",
        "leave out replicas and gang",
        "leave out replicas and gang",
    ),
    Case(
        "pods that follow without end",
        claim(scaling={"mode": "FollowPods"}),
        "spec.scaling",
        "needs maxReplicas",
        "needs maxReplicas",
    ),
    Case(
        "fixed scaling with bounds",
        claim(scaling={"mode": "Fixed", "maxReplicas": 4}),
        "spec.scaling",
        "with mode Fixed set spec.replicas",
        "with mode Fixed set spec.replicas",
    ),
    Case(
        "scaling bounds crossed",
        claim(scaling={"mode": "FollowPods", "minReplicas": 5, "maxReplicas": 4}),
        "spec.scaling.minReplicas",
        "minReplicas 5 is more than maxReplicas 4",
        "minReplicas 5 is more than maxReplicas 4",
    ),
    Case("a fabric without wish", claim(fabric={}), "spec.fabric", "at least one of", "at least one of required"),
    Case("a host without need", claim(host={}), "spec.host", "at least one of cpu", "at least one of cpu and memory"),
    Case("negative host cpu", claim(host={"cpu": -1}), "spec.host.cpu", "from 0 up to", "greater than or equal to 0"),
    Case(
        "host cpu as text that is no number", claim(host={"cpu": "many"}), "spec.host.cpu", "a quantity", "a quantity"
    ),
    Case(
        "thousandths of a byte",
        claim(host={"memory": "400m"}),
        "spec.host.memory",
        "a number of bytes",
        "a number of bytes",
    ),
    Case(
        "priority twice",
        claim(priority=3, priorityClassName="high"),
        "spec.priority",
        "priority 3 beside priorityClassName",
        "priority 3 beside priorityClassName",
    ),
    Case(
        "priority beyond range",
        claim(priority=2_000_000_000),
        "spec.priority",
        "at most 1000000000",
        "less than or equal",
    ),
    Case("a deadline that is no time", claim(deadline="tomorrow"), "spec.deadline", "RFC 3339", "date-time"),
    Case(
        "a duration without unit", claim(idleTimeout="30"), "spec.idleTimeout", "a duration longer", "a duration longer"
    ),
    Case("a duration of nothing", claim(maxRuntime="0h0m"), "spec.maxRuntime", "longer than zero", "longer than zero"),
    Case("a negative duration", claim(idleTimeout="-5m"), "spec.idleTimeout", "a duration longer", "a duration longer"),
    Case("an unknown profile", claim(profile="compute"), "spec.profile", "did you mean Compute?", "supported values"),
    Case(
        "slots and memory of one share",
        _request(share={"name": "slice", "slots": 2, "memory": "8Gi"}),
        "spec.requests[0].share",
        "exclude each other",
        "exclude each other",
    ),
    Case(
        "no memory",
        _request(share={"name": "slice", "memory": "0Gi"}),
        "spec.requests[0].share.memory",
        "memory 0Gi must be greater than 0",
        "memory 0Gi must be greater than 0",
    ),
    Case(
        "sameDevice without share",
        _request(sameDevice=True, count=2),
        "spec.requests[0].sameDevice",
        "needs a share",
        "needs a share",
    ),
    Case(
        "count beside firstOf",
        _request(count=2, firstOf=[{"name": "whole"}]),
        "spec.requests[0].firstOf",
        "only name and device",
        "only name and device",
    ),
    Case(
        "alternatives of one name",
        _request(firstOf=[{"name": "a"}, {"name": "a", "count": 2}]),
        "spec.requests[0].firstOf",
        "must differ",
        'must differ, found ["a", "a"]',
    ),
    Case(
        "count and all in an alternative",
        _request(firstOf=[{"name": "a", "count": 2, "all": True}]),
        "spec.requests[0].firstOf[0].count",
        "count 2 beside all: true",
        "count 2 beside all: true",
    ),
    Case(
        "a name that makes child names too long",
        claim("c" * 41),
        "metadata.name",
        "name has 41 characters; a DeviceClaim may have 40",
        "metadata.name has 41 characters; a claim may have 40",
    ),
    Case(
        "CEL that does not compile",
        _request(selectors=[{"cel": "device.attributes['gpu.nvidia.com'].productName ="}]),
        "spec.requests[0].selectors[0].cel",
        "",
        None,
    ),
    Case(
        "CEL that is no condition",
        _request(selectors=[{"cel": "1 + 1"}]),
        "spec.requests[0].selectors[0].cel",
        "",
        None,
    ),
    Case(
        "CEL of an undefined name",
        _request(selectors=[{"cel": "true"}, {"cel": "devise.driver == 'x'"}]),
        "spec.requests[0].selectors[1].cel",
        "",
        None,
    ),
    Case(
        "empty CEL",
        _request(selectors=[{"cel": ""}]),
        "spec.requests[0].selectors[0].cel",
        "must not be empty",
        "at least 1 chars long",
    ),
    Case(
        "a pool in another namespace",
        claim(poolRef={"name": "training", "namespace": "x"}),
        "spec.poolRef.namespace",
        "unknown field",
        None,
    ),
    Case("an unknown field", claim(affinty=[]), "spec.affinty", "unknown field; did you mean affinity?", None),
    Case(
        "an unknown field of a request",
        _request(selector=[]),
        "spec.requests[0].selector",
        "unknown field; did you mean selectors?",
        None,
    ),
    Case("snake case", claim(pool_ref={"name": "a"}), "spec.pool_ref", "unknown field; did you mean poolRef?", None),
)

IMMUTABLE_CASES = (
    Case(
        "the pool changes",
        claim(poolRef={"name": "b"}),
        "spec.poolRef",
        "poolRef is immutable",
        "poolRef is immutable",
        claim(poolRef={"name": "a"}),
    ),
    Case(
        "a pool is named later",
        claim(poolRef={"name": "b"}),
        "spec.poolRef",
        "poolRef is immutable",
        "poolRef is immutable",
        claim(),
    ),
    Case(
        "a count changes",
        _request(count=2),
        "spec.requests[0].count",
        "count is immutable",
        "count is immutable",
        _request(count=1),
    ),
    Case(
        "a selector changes",
        _request(selectors=[{"cel": "true"}]),
        "spec.requests[0].selectors",
        "selectors is immutable",
        "selectors is immutable",
        _request(selectors=[{"cel": "false"}]),
    ),
    Case(
        "a device changes",
        _request(device="nic"),
        "spec.requests[0].device",
        "device is immutable",
        "device is immutable",
        _request(device="gpu"),
    ),
    Case(
        "a request more",
        claim(requests=[{"name": "gpu"}, {"name": "nic"}]),
        "spec.requests",
        "requests are immutable",
        "requests are immutable",
        claim(requests=[{"name": "gpu"}]),
    ),
    Case(
        "a request less",
        claim(requests=[{"name": "gpu"}]),
        "spec.requests",
        "requests are immutable",
        "requests are immutable",
        claim(requests=[{"name": "gpu"}, {"name": "nic"}]),
    ),
    Case(
        "a line of affinity more",
        _line(scope="PCIeRoot"),
        "spec.affinity",
        "affinity is immutable",
        "affinity is immutable",
        claim(),
    ),
    Case(
        "requests of a line trade places",
        claim(affinity=[{"requests": ["nic", "gpu"], "scope": "PCIeRoot"}]),
        "spec.affinity",
        "affinity is immutable",
        "affinity is immutable",
        claim(affinity=[{"requests": ["gpu", "nic"], "scope": "PCIeRoot"}]),
    ),
    Case("a gang later", claim(gang={}), "spec.gang", "gang is immutable", "gang is immutable", claim()),
    Case(
        "a fabric changes",
        claim(fabric={"required": "rack"}),
        "spec.fabric",
        "fabric is immutable",
        "fabric is immutable",
        claim(fabric={"required": "block"}),
    ),
    Case(
        "the share of a request changes",
        _request(share={"name": "other", "memory": "8Gi"}),
        "spec.requests[0].share",
        "share is immutable but for memory and compute",
        "share is immutable but for memory and compute",
        _request(share={"name": "slice", "memory": "8Gi"}),
    ),
    Case(
        "whole devices become parts",
        _request(share={"name": "slice", "memory": "8Gi"}),
        "spec.requests[0].share",
        "share is immutable but for memory and compute",
        "share is immutable but for memory and compute",
        _request(),
    ),
    Case(
        "a share's mode changes",
        share(mode="MPS", timeSliced=None),
        "spec.mode",
        "mode is immutable",
        "mode is immutable",
        share(),
    ),
    Case(
        "a share's pool changes",
        share(poolRef={"name": "other"}),
        "spec.poolRef",
        "poolRef is immutable",
        "poolRef is immutable",
        share(),
    ),
    Case(
        "a share's device changes",
        share(device="nic"),
        "spec.device",
        "device is immutable",
        "device is immutable",
        share(),
    ),
)

POOL_CASES = (
    Case("no devices", pool(devices=[]), "spec.devices", "at least 1", "at least 1"),
    Case("devices left out", pool(devices=None), "spec.devices", "is required", "Required value"),
    Case(
        "two devices of one name",
        pool(devices=[*_device()["spec"]["devices"], *_device()["spec"]["devices"]]),
        "spec.devices[1].name",
        "the same as in spec.devices[0]",
        "Duplicate value",
    ),
    Case(
        "a type that does not exist",
        _device(type="NIC"),
        "spec.devices[0].type",
        "one of GPU, RDMA, Other",
        "supported values",
    ),
    Case("no source", _device(source={}), "spec.devices[0].source", "exactly one of", "exactly one of resourceSlices"),
    Case(
        "two sources",
        _device(source={"resourceSlices": {"driver": "a.b"}, "nodeResource": {"name": "a.b/gpu"}}),
        "spec.devices[0].source",
        "exactly one of resourceSlices, nodeResource and static",
        "exactly one of resourceSlices, nodeResource and static",
    ),
    Case(
        "a node resource without domain",
        _device(source={"nodeResource": {"name": "gpu"}}),
        "spec.devices[0].source.nodeResource.name",
        "an extended resource such as nvidia.com/gpu",
        "should match",
    ),
    Case(
        "a device name too long for its numbers",
        _device(name="g" * 49),
        "spec.devices[0].name",
        "at most 48 characters",
        "48",
    ),
    Case(
        "two classes of one name",
        _device(classes=[{"name": "a"}, {"name": "a"}]),
        "spec.devices[0].classes",
        "names of classes must differ",
        'names of classes must differ, found ["a", "a"]',
    ),
    Case(
        "negative performance",
        _device(classes=[{"name": "a", "performance": -1}]),
        "spec.devices[0].classes[0].performance",
        "at least 0",
        "greater than or equal to 0",
    ),
    Case(
        "CEL of a source does not compile",
        _device(source={"resourceSlices": {"driver": "a.b", "selectors": [{"cel": "device."}]}}),
        "spec.devices[0].source.resourceSlices.selectors[0].cel",
        "",
        None,
    ),
    Case(
        "CEL of a class does not compile",
        _device(classes=[{"name": "a", "selectors": [{"cel": "("}]}]),
        "spec.devices[0].classes[0].selectors[0].cel",
        "",
        None,
    ),
    Case(
        "two static nodes of one name",
        pool(
            devices=[
                {
                    "name": "gpu",
                    "type": "GPU",
                    "source": {"static": {"nodes": [{"name": "n1"}, {"name": "n2"}, {"name": "n1"}]}},
                }
            ]
        ),
        "spec.devices[0].source.static.nodes[2].name",
        "the same as in spec.devices[0].source.static.nodes[0]",
        "Duplicate value",
    ),
    Case(
        "two static devices of one name",
        static({"name": "g0"}, {"name": "g0"}),
        "spec.devices[0].source.static.nodes[0].devices[1].name",
        "the same as in",
        "Duplicate value",
    ),
    Case(
        "a static device with a name that is no DNS label",
        static({"name": "GPU_0"}),
        "spec.devices[0].source.static.nodes[0].devices[0].name",
        "a DNS label",
        "should match",
    ),
    Case(
        "static capacity below zero",
        static({"name": "g0", "capacity": {"memory": "-1Gi"}}),
        "spec.devices[0].source.static.nodes[0].devices[0].capacity.memory",
        "a quantity",
        "should match",
    ),
    Case(
        "a static attribute that is a fraction",
        static({"name": "g0", "attributes": {"numaNode": 0.5}}),
        "spec.devices[0].source.static.nodes[0].devices[0].attributes.numaNode",
        "a whole number, a boolean, a string",
        None,
    ),
    Case(
        "a static attribute that is an object",
        static({"name": "g0", "attributes": {"pcieRoot": {"string": "x"}}}),
        "spec.devices[0].source.static.nodes[0].devices[0].attributes.pcieRoot",
        "a whole number, a boolean, a string",
        None,
    ),
    Case(
        "a static attribute with mixed values",
        static({"name": "g0", "attributes": {"numaNode": [0, "1"]}}),
        "spec.devices[0].source.static.nodes[0].devices[0].attributes.numaNode",
        "plain values of one type",
        None,
    ),
    Case(
        "a static attribute name that is none",
        static({"name": "g0", "attributes": {"numa-node": 0}}),
        "spec.devices[0].source.static.nodes[0].devices[0].attributes.numa-node",
        "an attribute name such as",
        None,
    ),
    Case(
        "a static attribute given twice",
        static({"name": "g0", "attributes": {"uuid": "a", "adjoin.dev/uuid": "b"}}),
        "spec.devices[0].source.static.nodes[0].devices[0].attributes[adjoin.dev/uuid]",
        "is given twice",
        None,
    ),
    Case(
        "an alias that is a full name",
        pool(topology={"attributes": {"dra.net/numaNode": ["dra.net/numaNode"]}}),
        "spec.topology.attributes[dra.net/numaNode]",
        "a plain name",
        "names must be plain",
    ),
    Case(
        "an alias of a name without domain",
        pool(topology={"attributes": {"numaNode": ["numaNode"]}}),
        "spec.topology.attributes.numaNode[0]",
        "a full attribute name such as",
        "should match",
    ),
    Case(
        "an alias of nothing",
        pool(topology={"attributes": {"numaNode": []}}),
        "spec.topology.attributes.numaNode",
        "at least 1",
        "at least 1",
    ),
    Case(
        "a matrix without key",
        pool(topology={"matrices": [{"configMapRef": {"name": "dgx"}}]}),
        "spec.topology.matrices[0].configMapRef.key",
        "is required",
        "Required value",
    ),
    Case(
        "a matrix without text",
        pool(topology={"matrices": [{"nodeSelector": {}}]}),
        "spec.topology.matrices[0].configMapRef",
        "is required",
        "Required value",
    ),
    Case(
        "a matrix key that is none",
        pool(topology={"matrices": [{"configMapRef": {"name": "dgx", "key": "a b"}}]}),
        "spec.topology.matrices[0].configMapRef.key",
        "a ConfigMap key",
        "should match",
    ),
    Case(
        "a node selector with a bad value",
        pool(nodeSelector={"matchLabels": {"pool": "not a value"}}),
        "spec.nodeSelector.matchLabels.pool",
        "a label value",
        "should match",
    ),
    Case(
        "a node selector with a bad key",
        pool(nodeSelector={"matchLabels": {"a/b/c": "x"}}),
        "spec.nodeSelector.matchLabels[a/b/c]",
        "a label key",
        None,
    ),
    Case(
        "a node selector In nothing",
        pool(nodeSelector={"matchExpressions": [{"key": "pool", "operator": "In"}]}),
        "spec.nodeSelector.matchExpressions[0].values",
        "operator In needs at least one value",
        "operator In needs at least one value",
    ),
    Case(
        "a node selector Exists with values",
        pool(
            topology={
                "matrices": [
                    {
                        "nodeSelector": {"matchExpressions": [{"key": "a", "operator": "Exists", "values": ["x"]}]},
                        "configMapRef": {"name": "a", "key": "b"},
                    }
                ]
            }
        ),
        "spec.topology.matrices[0].nodeSelector.matchExpressions[0].values",
        "operator Exists takes no values",
        "operator Exists takes no values",
    ),
    Case(
        "a toleration of everything that compares",
        pool(tolerations=[{"effect": "NoSchedule"}]),
        "spec.tolerations[0].operator",
        "without a key the operator must be Exists",
        "without a key the operator must be Exists",
    ),
    Case(
        "a toleration Exists with value",
        pool(tolerations=[{"key": "a", "operator": "Exists", "value": "b"}]),
        "spec.tolerations[0].value",
        "operator Exists takes no value, found b",
        "operator Exists takes no value, found b",
    ),
    Case(
        "a toleration of limited time",
        pool(tolerations=[{"key": "a", "operator": "Exists", "tolerationSeconds": 3}]),
        "spec.tolerations[0].tolerationSeconds",
        "unknown field",
        None,
    ),
    Case(
        "negative quota",
        _tenancy(tenants=[{"name": "a", "quota": {"gpu": -1}}]),
        "spec.tenancy.tenants[0].quota.gpu",
        "at least 0",
        "greater than or equal to 0",
    ),
    Case(
        "negative borrowing",
        _tenancy(tenants=[{"name": "a", "borrowing": {"gpu": -1}}]),
        "spec.tenancy.tenants[0].borrowing.gpu",
        "at least 0",
        "greater than or equal to 0",
    ),
    Case(
        "quota of a device that the pool does not have",
        _tenancy(tenants=[{"name": "a", "quota": {"gpus": 4}}]),
        "spec.tenancy.tenants[0].quota.gpus",
        "it has gpu, nic",
        'quota limits devices that the pool does not have; it has ["gpu", "nic"]',
    ),
    Case(
        "borrowing of a device that the pool does not have",
        _tenancy(tenants=[{"name": "a", "borrowing": {"gpu": 1, "tpu": 4}}]),
        "spec.tenancy.tenants[0].borrowing.tpu",
        "it has gpu, nic",
        "borrowing limits devices that the pool does not have",
    ),
    Case(
        "a default tenant that does not exist",
        _tenancy(default="b", tenants=[{"name": "a"}]),
        "spec.tenancy.default",
        "default b is none of the tenants",
        "default b is none of the tenants",
    ),
    Case(
        "a namespace of two tenants",
        _tenancy(tenants=[{"name": "a", "namespaces": ["x"]}, {"name": "b", "namespaces": ["y", "x"]}]),
        "spec.tenancy.tenants[1].namespaces[1]",
        "belongs to tenant a already",
        None,
    ),
    Case(
        "two tenants of one name",
        _tenancy(tenants=[{"name": "a"}, {"name": "a"}]),
        "spec.tenancy.tenants[1].name",
        "the same as in",
        "Duplicate value",
    ),
    Case(
        "weight 0",
        _tenancy(tenants=[{"name": "a", "weight": 0}]),
        "spec.tenancy.tenants[0].weight",
        "at least 1",
        "greater than",
    ),
    Case(
        "a hook for a device that the pool does not have",
        pool(lifecycle={"init": [_hook(devices=["gpu", "tpu"])]}),
        "spec.lifecycle.init[0].devices[1]",
        "the pool has no such device",
        "init hooks name devices that the pool does not have",
    ),
    Case(
        "two hooks of one name",
        pool(lifecycle={"cleanup": [_hook(), _hook()]}),
        "spec.lifecycle.cleanup",
        "names of hooks must differ",
        "names of hooks must differ",
    ),
    Case(
        "a hook without end",
        pool(lifecycle={"init": [_hook(timeout="0s")]}),
        "spec.lifecycle.init[0].timeout",
        "longer than zero",
        "longer than zero",
    ),
    Case(
        "a parameter whose default is no value",
        pool(lifecycle={"parameters": [{"name": "scrub", "values": ["quick"], "default": "full"}]}),
        "spec.lifecycle.parameters[0].default",
        "default full is none of the values quick",
        "default full is none of the values",
    ),
    Case(
        "two fabric levels of one name",
        pool(topology={"fabric": [{"name": "rack", "nodeLabel": "a"}, {"name": "rack", "nodeLabel": "b"}]}),
        "spec.topology.fabric",
        "names of levels must differ",
        "names of levels must differ",
    ),
    Case(
        "a guard that does not exist",
        pool(delivery={"guard": "none"}),
        "spec.delivery.guard",
        "did you mean None?",
        "supported values",
    ),
    Case(
        "optimising for a bare number",
        pool(placement={"optimiseFor": 300}),
        "spec.placement.optimiseFor",
        "0 or a duration",
        "less than or equal to 0",
    ),
    Case("a name that is no label value", pool("p" * 64), "metadata.name", "may have 63", "a pool may have 63"),
)

SHARE_CASES = (
    Case(
        "settings of another mode",
        share(mode="MPS"),
        "spec.timeSliced",
        "timeSliced goes with mode TimeSliced, not with MPS",
        "timeSliced goes with mode TimeSliced, not with MPS",
    ),
    Case(
        "a mode without its settings",
        share(timeSliced=None),
        "spec",
        "mode TimeSliced needs timeSliced",
        "mode TimeSliced needs timeSliced",
    ),
    Case(
        "partitions neither static nor dynamic",
        share(mode="Partitioned", timeSliced=None, partitioned={}),
        "spec.partitioned",
        "exactly one of layout and dynamic",
        "exactly one of layout and dynamic",
    ),
    Case(
        "partitions both static and dynamic",
        share(
            mode="Partitioned",
            timeSliced=None,
            partitioned={"layout": [{"profile": "1g.10gb"}], "dynamic": {"profiles": ["1g.10gb"]}},
        ),
        "spec.partitioned",
        "exactly one of layout and dynamic",
        "exactly one of layout and dynamic",
    ),
    Case(
        "no slots", share(timeSliced={"slots": 0}), "spec.timeSliced.slots", "at least 1", "greater than or equal to 1"
    ),
    Case(
        "more than all in reserve",
        share(mode="MPS", timeSliced=None, mps={"reserve": "101%"}),
        "spec.mps.reserve",
        "from 0% to 100%",
        "from 0% to 100%",
    ),
    Case(
        "a reserve in fractions of one",
        share(mode="Fractional", timeSliced=None, fractional={"reserve": "0.03"}),
        "spec.fractional.reserve",
        "from 0% to 100%",
        "from 0% to 100%",
    ),
    Case("a share of no pool", share(poolRef=None), "spec.poolRef", "is required", "Required value"),
    Case("a name that is no label value", share("s" * 64), "metadata.name", "may have 63", "a share may have 63"),
)

REFUSED = (*CLAIM_CASES, *POOL_CASES, *SHARE_CASES)

ACCEPTED: dict[str, Manifest] = {
    "one GPU": claim(requests=[{"name": "gpu"}]),
    "a GPU and the NIC beside it": claim(
        poolRef={"name": "training"}, affinity=[{"requests": ["gpu", "nic"], "scope": "PCIeRoot", "policy": "Required"}]
    ),
    "eight GPUs in one clique": claim(
        requests=[{"name": "gpu", "count": 8}], affinity=[{"requests": ["gpu"], "scope": "NVLink"}]
    ),
    "all GPUs of a node, wherever they are": claim(
        requests=[{"name": "gpu", "all": True}], affinity=[{"requests": ["gpu"], "scope": "NUMANode"}]
    ),
    "eight GPUs and 32 NICs": claim(requests=[{"name": "gpu", "count": 8}, {"name": "nic", "count": 32}]),
    "count beside all: false": claim(requests=[{"name": "gpu", "count": 2, "all": False}]),
    "an attribute of one device": claim(
        requests=[{"name": "gpu"}], affinity=[{"requests": ["gpu"], "attribute": "numaNode", "policy": "Match"}]
    ),
    "attributes by alias and full name": claim(
        affinity=[
            {"requests": ["gpu", "nic"], "attribute": "numaNode", "policy": "Match", "over": "Replica"},
            {"requests": ["nic"], "attribute": "dra.net/rail", "policy": "Distinct"},
        ]
    ),
    "a device under another name": claim(requests=[{"name": "trainer", "device": "gpu", "count": 2}]),
    "4096 devices": claim(requests=[{"name": "gpu", "count": 8}], replicas=512),
    "no replica": claim(replicas=0),
    "the lowest priority": claim(priority=-1_000_000_000),
    "values that mean absence": claim(
        suspend=False,
        preemptible=True,
        profile="Balanced",
        release="WhenDeleted",
        scaling={"mode": "Fixed"},
        priority=0,
    ),
    "a name of 40 characters": claim("c" * 40),
    "a small pool": pool(),
    "a pool by label": pool(
        nodeSelector={
            "matchLabels": {"example.com/pool": "training"},
            "matchExpressions": [
                {"key": "gpu", "operator": "In", "values": ["h100", ""]},
                {"key": "x", "operator": "Exists"},
            ],
        }
    ),
    "a pool with classes": _device(
        classes=[
            {
                "name": "h100",
                "selectors": [{"cel": "device.attributes['gpu.nvidia.com'].productName.contains('H100')"}],
                "performance": 100,
                "priority": -10,
            },
            {"name": "rest"},
        ]
    ),
    "counted devices": _device(source={"nodeResource": {"name": "nvidia.com/gpu"}}),
    "static devices": static(
        {
            "name": "g0",
            "attributes": {"numaNode": [0, 1], "pcieRoot": "pci0000:10", "dra.net/rdma": True, "uuid": "GPU-1"},
            "capacity": {"memory": "80Gi", "slots": 4},
        },
        {"name": "g1"},
    ),
    "aliases and matrices": pool(
        topology={
            "attributes": {"numaNode": ["resource.kubernetes.io/numaNode", "dra.net/numaNode"]},
            "matrices": [
                {
                    "nodeSelector": {"matchLabels": {"shape": "dgx-h100"}},
                    "configMapRef": {"name": "dgx-h100", "key": "topo"},
                },
                {"configMapRef": {"name": "other.shapes", "key": "topo.txt"}},
            ],
        }
    ),
    "tolerations": pool(
        tolerations=[
            {"key": "nvidia.com/gpu", "operator": "Exists"},
            {"key": "a", "value": "b", "effect": "NoSchedule"},
            {"operator": "Exists"},
        ]
    ),
    "delivery without guard, split by driver": pool(delivery={"guard": "None", "split": "Driver"}),
}
"""Objects that are accepted by `validate` and by the API server."""

ALLOWED_CHANGES: dict[str, tuple[Manifest, Manifest]] = {
    "more replicas": (claim(), claim(replicas=3)),
    "another priority": (claim(), claim(priority=5)),
    "requests in another order": (
        claim(requests=[{"name": "gpu"}, {"name": "nic"}]),
        claim(requests=[{"name": "nic"}, {"name": "gpu"}]),
    ),
    "nothing": (claim(affinity=[{"requests": ["gpu", "nic"], "scope": "Node"}]),) * 2,
    "an empty affinity for none": (claim(), claim(affinity=[])),
    "another source of a pool": (pool(), _device(source={"nodeResource": {"name": "nvidia.com/gpu"}})),
}
"""Changes (before, after) that are accepted."""
