"""DevicePools and DeviceShares that are refused."""

from __future__ import annotations

from tests.support.api_objects import Case, annotated, device, hook, pool, share, static, tenancy

POOL_CASES = (
    Case(
        "a default pool by another word than true",
        annotated(pool(), default_pool="yes"),
        "metadata.annotations[adjoin.dev/default-pool]",
        "must be 'true'",
        None,
    ),
    Case(
        "an annotation of ours that is none",
        annotated(pool(), defaultpool="true"),
        "metadata.annotations[adjoin.dev/defaultpool]",
        "only adjoin.dev/default-pool and adjoin.dev/release-quarantine are",
        None,
    ),
    Case(
        "a release that names no device",
        annotated(pool(), release_quarantine='[{"reason": "x"}]'),
        "metadata.annotations[adjoin.dev/release-quarantine]",
        "must be a list such as",
        None,
    ),
    Case("no devices", pool(devices=[]), "spec.devices", "at least 1", "at least 1"),
    Case("devices left out", pool(devices=None), "spec.devices", "is required", "Required value"),
    Case(
        "two devices of one name",
        pool(devices=[*device()["spec"]["devices"], *device()["spec"]["devices"]]),
        "spec.devices[1].name",
        "the same as in spec.devices[0]",
        "Duplicate value",
    ),
    Case(
        "a type that does not exist",
        device(type="NIC"),
        "spec.devices[0].type",
        "one of GPU, RDMA, Other",
        "supported values",
    ),
    Case("no source", device(source={}), "spec.devices[0].source", "exactly one of", "exactly one of resourceSlices"),
    Case(
        "two sources",
        device(source={"resourceSlices": {"driver": "a.b"}, "nodeResource": {"name": "a.b/gpu"}}),
        "spec.devices[0].source",
        "exactly one of resourceSlices, nodeResource and static",
        "exactly one of resourceSlices, nodeResource and static",
    ),
    Case(
        "a node resource without domain",
        device(source={"nodeResource": {"name": "gpu"}}),
        "spec.devices[0].source.nodeResource.name",
        "an extended resource such as nvidia.com/gpu",
        "should match",
    ),
    Case(
        "a device name too long for its numbers",
        device(name="g" * 49),
        "spec.devices[0].name",
        "at most 48 characters",
        "48",
    ),
    Case(
        "two classes of one name",
        device(classes=[{"name": "a"}, {"name": "a"}]),
        "spec.devices[0].classes",
        "names of classes must differ",
        'names of classes must differ, found ["a", "a"]',
    ),
    Case(
        "negative performance",
        device(classes=[{"name": "a", "performance": -1}]),
        "spec.devices[0].classes[0].performance",
        "at least 0",
        "greater than or equal to 0",
    ),
    Case(
        "CEL of a source does not compile",
        device(source={"resourceSlices": {"driver": "a.b", "selectors": [{"cel": "device."}]}}),
        "spec.devices[0].source.resourceSlices.selectors[0].cel",
        "",
        None,
    ),
    Case(
        "CEL of a class does not compile",
        device(classes=[{"name": "a", "selectors": [{"cel": "("}]}]),
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
        "two static devices of one uuid",
        static({"name": "g0", "attributes": {"uuid": "U0"}}, {"name": "g1", "attributes": {"adjoin.dev/uuid": "U0"}}),
        "spec.devices[0].source.static.nodes[0].devices[1].attributes[adjoin.dev/uuid]",
        "is the uuid of spec.devices[0].source.static.nodes[0].devices[0] too; list each device once",
        None,
    ),
    Case(
        "one static device under two device names",
        pool(
            devices=[
                {
                    "name": name,
                    "type": "GPU",
                    "source": {"static": {"nodes": [{"name": "n1", "devices": [{"name": "g0"}]}]}},
                }
                for name in ("gpu", "card")
            ]
        ),
        "spec.devices[1].source.static.nodes[0].devices[0].name",
        "is a device of node n1 in spec.devices[0].source.static.nodes[0].devices[0] already; a node's devices need",
        None,
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
        tenancy(tenants=[{"name": "a", "quota": {"gpu": -1}}]),
        "spec.tenancy.tenants[0].quota.gpu",
        "at least 0",
        "greater than or equal to 0",
    ),
    Case(
        "negative borrowing",
        tenancy(tenants=[{"name": "a", "borrowing": {"gpu": -1}}]),
        "spec.tenancy.tenants[0].borrowing.gpu",
        "at least 0",
        "greater than or equal to 0",
    ),
    Case(
        "quota of a device that the pool does not have",
        tenancy(tenants=[{"name": "a", "quota": {"gpus": 4}}]),
        "spec.tenancy.tenants[0].quota.gpus",
        "it has gpu, nic",
        'quota limits devices that the pool does not have; it has ["gpu", "nic"]',
    ),
    Case(
        "borrowing of a device that the pool does not have",
        tenancy(tenants=[{"name": "a", "borrowing": {"gpu": 1, "tpu": 4}}]),
        "spec.tenancy.tenants[0].borrowing.tpu",
        "it has gpu, nic",
        "borrowing limits devices that the pool does not have",
    ),
    Case(
        "a default tenant that does not exist",
        tenancy(default="b", tenants=[{"name": "a"}]),
        "spec.tenancy.default",
        "default b is none of the tenants",
        "default b is none of the tenants",
    ),
    Case(
        "a namespace of two tenants",
        tenancy(tenants=[{"name": "a", "namespaces": ["x"]}, {"name": "b", "namespaces": ["y", "x"]}]),
        "spec.tenancy.tenants[1].namespaces[1]",
        "belongs to tenant a already",
        None,
    ),
    Case(
        "two tenants of one name",
        tenancy(tenants=[{"name": "a"}, {"name": "a"}]),
        "spec.tenancy.tenants[1].name",
        "the same as in",
        "Duplicate value",
    ),
    Case(
        "weight 0",
        tenancy(tenants=[{"name": "a", "weight": 0}]),
        "spec.tenancy.tenants[0].weight",
        "at least 1",
        "greater than",
    ),
    Case(
        "a hook for a device that the pool does not have",
        pool(lifecycle={"init": [hook(devices=["gpu", "tpu"])]}),
        "spec.lifecycle.init[0].devices[1]",
        "the pool has no such device",
        "init hooks name devices that the pool does not have",
    ),
    Case(
        "two hooks of one name",
        pool(lifecycle={"cleanup": [hook(), hook()]}),
        "spec.lifecycle.cleanup",
        "names of hooks must differ",
        "names of hooks must differ",
    ),
    Case(
        "a hook without end",
        pool(lifecycle={"init": [hook(timeout="0s")]}),
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
