"""Builds the inventory of a view, again and again, touching only what changed.

In comes a View, out goes an `Inventory`. Only nodes whose slices, Node, pools, taint rules or held devices changed are
sorted out again, and the tuple of a node's devices stays the same object while nothing about it changed. What is
remembered changes speed alone: a fresh builder makes an equal inventory of the same view.

Nothing here decides who gets a device or reads a clock.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Collection, Iterable, Mapping
from dataclasses import fields, replace

from adjoin.api.names import DRIVER
from adjoin.cache import View
from adjoin.facts import ConfigMapFacts, NodeFacts, TaintRuleFacts
from adjoin.inventory.changes import changed_keys, updated
from adjoin.inventory.driver_pools import DriverPools, Key
from adjoin.inventory.held import NOTHING, Found, Holders, find, recorded
from adjoin.inventory.hosts import HostUse
from adjoin.inventory.node_devices import NodeDevices, Overlap, Surroundings, node_devices, stable_order
from adjoin.inventory.policy import policy_of
from adjoin.inventory.pools import PoolRules, default_pools, prepare, read_matrices, same_rules, seniority
from adjoin.inventory.quarantine import locked_by_node
from adjoin.inventory.result import Inventory, PoolReport
from adjoin.inventory.silence import read_silences, silent_drivers
from adjoin.inventory.taints import DriverPoolRules, Tainted, TaintRules, scopes
from adjoin.inventory.tenancy import TenancyRules, prepare_tenancy
from adjoin.loads import NodeLoad
from adjoin_allocator.model import Device, DeviceID, MatrixText, Node, Pool, natural_key

HOSTNAME = "kubernetes.io/hostname"


class InventoryBuilder:
    """Builds inventories of successive views.

    Args:
        cluster: The view comes from a cluster: devices of guarded pools wait for their guard, and a node without an
        object does not exist.
            Otherwise (files) nobody else gives out devices, and nodes that are only named are made up.
    """

    def __init__(self, *, cluster: bool = True) -> None:
        self._cluster = cluster
        self._pool_facts: Mapping[str, object] = {}
        self._config_maps: Mapping[str, ConfigMapFacts] = {}
        self._known_nodes: Mapping[str, NodeFacts] = {}
        self._known_rules: Mapping[str, TaintRuleFacts] = {}
        self._pools: dict[str, PoolRules] = {}
        self._listing: dict[str, tuple[PoolRules, ...]] = {}
        self._driver_pools = DriverPools()
        self._taint_rules = TaintRules()
        self._hosts = HostUse()
        self._loads: Mapping[str, NodeLoad] = {}
        self._tenancies: Mapping[str, TenancyRules] = {}
        self._parameters: Mapping[str, Mapping[str, tuple[str, ...]]] = {}
        self._rules: dict[Key, DriverPoolRules] = {}
        self._holders = Holders()
        self._sites: dict[str, NodeDevices] = {}
        self._speaking: set[str] = set()
        self._matrices: dict[str, Mapping[str, MatrixText]] = {}
        self._found: Mapping[str, Found] = {}
        self._nodes: Mapping[str, Node] = {}
        self._devices: Mapping[str, tuple[Device, ...]] = {}
        self._made: dict[str, tuple[PoolReport, Pool]] = {}
        self._stale_reports = True
        self._guard_served = False
        self._locked: Mapping[str, Mapping[str, str]] = {}
        self._overdue: Mapping[str, frozenset[Key]] = {}

    def build(self, view: View, overdue: Mapping[str, frozenset[Key]] = {}) -> Inventory:
        """The inventory of `view`. Costs a look at every object, and work only for what changed since the last call.
        `overdue` are by pool the drivers that, if they are silent, have been so for too long.

        1. Pools whose spec or matrix changed are prepared again, and then every node is dirty.
        2. Driver pools of changed slices are read again, and their nodes are dirty.
        3. Taint rules that changed make the nodes dirty whose driver pools they can mean.
        4. Nodes that changed are dirty.
        5. Dirty nodes are sorted out.
        6. Held devices are found again on dirty nodes and where holders changed.
        7. Pools are put together with what was seen.
        """
        locked = self._locked if view.pools is self._pool_facts else locked_by_node(view.pools.values())
        every = self._update_pools(view)
        dirty = self._driver_pools.update(view.slices)
        for key in self._driver_pools.vanished:
            self._rules.pop(key, None)
        dirty |= self._update_taint_rules(view.taint_rules)
        dirty.update(changed_keys(self._known_nodes, view.nodes))
        self._known_nodes = view.nodes
        dirty.update(name for name in {*self._locked, *locked} if self._locked.get(name) != locked.get(name))
        self._locked = locked
        fuller = self._hosts.update(view.guests)
        fuller.update(changed_keys(self._loads, view.loads))
        self._loads = view.loads
        if every:
            dirty.update(self._driver_pools.of_node, self._listing, self._sites, view.nodes)
        self._sort_out(dirty)
        defaults = default_pools(rules.facts for rules in self._pools.values())
        touched = self._holders.update(view.claims, defaults[0] if defaults else "")
        self._recover(dirty | touched | (self._holders.nodes if every else set()))
        self._nodes = updated(self._nodes, fuller, {name: self._node(name) for name in fuller if name in self._nodes})
        silent = silent_drivers(
            self._pools, self._driver_pools.by_key, self._driver_pools.silenced, view.nodes, self._found
        )
        for rules in self._pools.values():
            for each in read_silences(rules.facts.status):
                self._driver_pools.silenced.pop(each.key, None)
        late = {
            name: frozenset(each.key for each in group if each.key in overdue.get(name, ()))
            for name, group in silent.items()
        }
        stale = self._stale_reports or late != self._overdue or view.guard_served != self._guard_served
        if dirty or stale:
            self._guard_served, self._stale_reports, self._overdue = view.guard_served, False, late
            self._report(view)
        return Inventory(
            nodes=self._nodes,
            devices=self._devices,
            pools={name: pool for name, (_, pool) in self._made.items()},
            reports={name: report for name, (report, _) in self._made.items()},
            tenancies=self._tenancies,
            parameters=self._parameters,
            defaults=defaults,
            silences=silent,
            _found=self._found,
            _driver_pools=self._driver_pools.by_key,
        )

    def _update_pools(self, view: View) -> bool:
        """Prepares pools again and says whether anything but their facts changed."""
        if view.pools is self._pool_facts and view.config_maps is self._config_maps:
            return False
        self._pool_facts, self._config_maps = view.pools, view.config_maps
        self._stale_reports = True
        texts = _texts(view)
        # Two objects of one name: the old one's end has not been seen yet.
        by_name = {
            facts.meta.name: facts for facts in sorted(view.pools.values(), key=lambda facts: facts.meta.version)
        }
        changed = by_name.keys() != self._pools.keys()
        pools: dict[str, PoolRules] = {}
        for facts in sorted(by_name.values(), key=seniority):
            known = self._pools.get(facts.meta.name)
            if known is not None and same_rules(known, facts, read_matrices(facts, texts)):
                pools[facts.meta.name] = known if known.facts is facts else replace(known, facts=facts)
            else:
                pools[facts.meta.name] = prepare(facts, texts)
                changed = True
        self._pools = pools
        self._tenancies = {name: prepare_tenancy(rules.facts.pool.spec.tenancy) for name, rules in pools.items()}
        self._parameters = {
            name: {each.name: each.values for each in rules.facts.pool.spec.lifecycle.parameters}
            for name, rules in pools.items()
        }
        listing: dict[str, list[PoolRules]] = {}
        for rules in pools.values():
            for node in rules.listed:
                listing.setdefault(node, []).append(rules)
        self._listing = {node: tuple(rules) for node, rules in listing.items()}
        return changed

    def _update_taint_rules(self, rules: Mapping[str, TaintRuleFacts]) -> set[str]:
        """Takes the taint rules and returns the nodes with driver pools that changed ones can mean."""
        known, self._known_rules = self._known_rules, rules
        changed = [each for uid in changed_keys(known, rules) for each in (known.get(uid), rules.get(uid)) if each]
        if not changed:
            return set()
        self._taint_rules = TaintRules(rules.values())
        concerned = {(rule.driver, rule.pool) for rule in changed}
        nodes: set[str] = set()
        for key, driver_pool in self._driver_pools.by_key.items():
            if not concerned.isdisjoint(scopes(*key)):
                self._rules.pop(key, None)
                nodes |= driver_pool.nodes
        if any(rule.driver in ("", DRIVER) for rule in changed):
            # Devices that no driver publishes are of a pool that has the name of their node.
            unpublished = {*self._listing, *self._sites}
            nodes.update(name for name in unpublished if not concerned.isdisjoint(scopes(DRIVER, name)))
        return nodes

    def _rules_for(self, key: Key) -> DriverPoolRules:
        rules = self._rules.get(key)
        if rules is None:
            rules = self._rules[key] = self._taint_rules.for_driver_pool(*key)
        return rules

    def _sort_out(self, names: Collection[str]) -> None:
        """Sorts out the devices of these nodes."""
        matrices: dict[str, dict[str, MatrixText]] = {name: {} for name in self._pools}
        for name in names:
            facts = self._known_nodes.get(name)
            node = facts.node if facts is not None else self._unknown(name)
            pools = tuple(rules for rules in self._pools.values() if rules.selects(node.labels))
            texts = {rules.name: text for rules in pools if (text := rules.matrix_for(node.labels)) is not None}
            site = node_devices(
                Surroundings(
                    node=node,
                    pools=pools,
                    listing=pools if facts is not None else self._listing.get(name, ()),
                    driver_pools=tuple(
                        (driver_pool, self._rules_for((driver_pool.driver, driver_pool.name)))
                        for driver_pool in self._driver_pools.on(name)
                    ),
                    own_rules=self._taint_rules.for_driver_pool(DRIVER, name),
                    allocatable=facts.allocatable if facts is not None else {},
                    gpu_ids={pool: text.gpu_ids for pool, text in texts.items()},
                    guarding=self._cluster,
                    locked=self._locked.get(name, {}),
                )
            )
            speaks = bool(site.overlaps or site.parts or site.beyond or site.tainted)
            (self._speaking.add if speaks else self._speaking.discard)(name)
            if site.devices or speaks:
                self._sites[name] = site
            else:
                self._sites.pop(name, None)
            if site.devices:
                for pool, text in texts.items():
                    matrices[pool][name] = text
        self._matrices = {
            pool: updated(self._matrices.get(pool, {}), names, texts_of) for pool, texts_of in matrices.items()
        }

    def _node(self, name: str) -> Node:
        """The node with what pods ask of it and what is measured; the same object while nothing of it changed."""
        facts = self._known_nodes.get(name)
        if facts is None:
            return self._unknown(name)
        cpu, memory = self._hosts.used(name)
        load = self._loads.get(name)
        if load is None and (cpu, memory) == (facts.node.cpu_used_milli, facts.node.memory_used_bytes):
            return facts.node
        known = self._nodes.get(name)
        node = replace(facts.node, cpu_used_milli=cpu, memory_used_bytes=memory)
        if load is not None:
            node = replace(node, cpu_load_milli=load.cpu_milli, memory_load_bytes=load.memory_bytes)
        return known if known == node else node

    def _unknown(self, name: str) -> Node:
        """A node that is only named: made up for files, absent on a cluster."""
        if self._cluster:
            return Node(name, {}, ready=False, exists=False)
        return Node(name, {HOSTNAME: name})

    def _recover(self, names: Collection[str]) -> None:
        """Finds what is held on these nodes again and puts their devices together."""
        found: dict[str, Found] = {}
        devices: dict[str, tuple[Device, ...]] = {}
        nodes: dict[str, Node] = {}
        for name in names:
            site = self._sites.get(name, NOWHERE)
            held = self._holders.on(name)
            again = NOTHING
            if held:
                again = find(name, held, site, self._elsewhere(name), self._driver_pools.by_key, self._pools)
            everything = site.devices
            if again.devices:
                everything = tuple(sorted((*site.devices, *again.devices), key=stable_order))
            if held:
                everything = recorded(everything, held)
            if again is not NOTHING:
                found[name] = again
            if everything:
                devices[name] = _unchanged(self._devices.get(name), everything)
                nodes[name] = self._node(name)
        self._found = updated(self._found, names, found)
        self._devices = updated(self._devices, names, devices)
        self._nodes = updated(self._nodes, names, nodes)

    def _elsewhere(self, name: str) -> Callable[[DeviceID], bool]:
        def offered_elsewhere(device: DeviceID) -> bool:
            driver_pool = self._driver_pools.by_key.get((device.driver, device.pool))
            return driver_pool is not None and any(
                device in site.identities
                for node in driver_pool.devices
                if node != name and (site := self._sites.get(node)) is not None
            )

        return offered_elsewhere

    def _report(self, view: View) -> None:
        """Puts the pools together. A pool about which nothing changed stays the same object."""
        guard_served = view.guard_served or not self._cluster
        overlaps, parts, beyond, tainted = self._seen()
        troubled = list(self._driver_pools.troubled.values())
        made: dict[str, tuple[PoolReport, Pool]] = {}
        for name, rules in self._pools.items():
            mine = [each for each in troubled if each.driver in rules.published]
            withheld = {
                each.problem: each.driver for each in mine if each.problem and self._selects_any(rules, each.nodes)
            }
            for driver, at in self._overdue.get(name, ()):
                withheld[f"{driver}/{at}: no ResourceSlices"] = driver
            report = PoolReport(
                broken=rules.broken,
                deleting=rules.facts.meta.deleting is not None,
                guard_unavailable=rules.guarded and not guard_served,
                withheld=tuple(sorted(withheld, key=natural_key)),
                overlaps=tuple(overlaps.get(name, ())),
                remote=sum(
                    any(offer.matches(device) for offer in rules.published[each.driver])
                    for each in mine
                    for device in each.remote
                ),
                parts=parts[name],
                beyond=beyond[name],
                tainted=tuple(tainted.get(name, ())),
            )
            pool = Pool(
                name=name,
                devices=rules.names,
                aliases=rules.aliases,
                matrices=self._matrices.get(name, {}),
                tolerations=rules.tolerations,
                withheld=report.withheld,
                withheld_kinds={
                    message: tuple(offer.name for offer in rules.published[driver])
                    for message, driver in withheld.items()
                    if driver in rules.published
                },
                unavailable=report.unavailable,
                **policy_of(rules.facts.pool.spec),
            )
            known = self._made.get(name)
            made[name] = (report, known[1] if known is not None and _equal(known[1], pool) else pool)
        self._made = made

    def _seen(self) -> tuple[dict[str, list[Overlap]], Counter[str], Counter[str], dict[str, list[Tainted]]]:
        """By pool its overlaps, in stable order, how many parts of devices it selects, how many devices are counted
        beyond those that are offered, and its tainted devices."""
        overlaps: dict[str, list[Overlap]] = {}
        parts: Counter[str] = Counter()
        beyond: Counter[str] = Counter()
        tainted: dict[str, list[Tainted]] = {}
        for name in sorted(self._speaking, key=natural_key):
            site = self._sites[name]
            for overlap in site.overlaps:
                overlaps.setdefault(overlap.pool, []).append(overlap)
            parts.update(site.parts)
            beyond.update(site.beyond)
            for device in site.tainted:
                tainted.setdefault(device.pool, []).append(device)
        return overlaps, parts, beyond, tainted

    def _selects_any(self, rules: PoolRules, nodes: Iterable[str]) -> bool:
        for name in nodes:
            facts = self._known_nodes.get(name)
            if rules.selects(facts.node.labels if facts is not None else self._unknown(name).labels):
                return True
        return False


NOWHERE = NodeDevices((), {}, (), {}, {})


def _texts(view: View) -> dict[str, Mapping[str, str]]:
    """Data of ConfigMaps by name; of two of one name the one in the operator's namespace."""
    ordered = sorted(
        view.config_maps.values(),
        key=lambda facts: (facts.meta.namespace == view.namespace, facts.meta.namespace, facts.meta.version),
    )
    return {facts.meta.name: facts.data for facts in ordered}


def _unchanged(before: tuple[Device, ...] | None, after: tuple[Device, ...]) -> tuple[Device, ...]:
    """`before` if it says the same as `after`, so that whatever was made of it stays good."""
    if before is None or len(before) != len(after):
        return after
    same = all(
        getattr(one, field) == getattr(other, field)
        for one, other in zip(before, after, strict=True)
        for field in _DEVICE_FIELDS
    )
    return before if same else after


_DEVICE_FIELDS = tuple(field.name for field in fields(Device))
_POOL_FIELDS = tuple(field.name for field in fields(Pool))


def _equal(one: Pool, other: Pool) -> bool:
    return all(getattr(one, field) == getattr(other, field) for field in _POOL_FIELDS)
