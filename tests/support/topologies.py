"""Small machines as their own programs would describe them, written by hand from what the formats say.

`NCCL` and `HWLOC` are one machine: two NUMA nodes; on the first two GPUs and a dual-port NIC on one switch, and a third
GPU behind a second switch below it; on the second a GPU and a NIC on root ports of their own, in one root complex.
"""

from __future__ import annotations

NCCL = """\
<system version="1">
  <cpu numaid="0" affinity="0000ffff" arch="x86_64" vendor="AuthenticAMD" familyid="175" modelid="1">
    <pci busid="0000:01:00.0" class="0x060400" link_speed="32.0 GT/s PCIe" link_width="16">
      <pci busid="0000:04:00.0" class="0x030200" link_speed="32.0 GT/s PCIe" link_width="16">
        <gpu dev="1" sm="90" rank="1" gdr="1">
          <nvlink target="0000:03:00.0" count="4" tclass="0x030200"/>
        </gpu>
      </pci>
      <pci busid="0000:03:00.0" class="0x030200" link_speed="32.0 GT/s PCIe" link_width="16">
        <gpu dev="0" sm="90" rank="0" gdr="1">
          <nvlink target="0000:04:00.0" count="4" tclass="0x030200"/>
        </gpu>
      </pci>
      <pci busid="0000:05:00.0" class="0x020700" link_speed="32.0 GT/s PCIe" link_width="16">
        <nic>
          <net name="mlx5_0" dev="0" speed="400000" port="1" guid="0x1" maxconn="131072" gdr="1"/>
        </nic>
      </pci>
      <pci busid="0000:05:00.1" class="0x020700" link_speed="32.0 GT/s PCIe" link_width="16">
        <nic>
          <net name="mlx5_1" dev="1" speed="400000" port="1" guid="0x2" maxconn="131072" gdr="1"/>
        </nic>
      </pci>
      <pci busid="0000:06:00.0" class="0x060400">
        <pci busid="0000:08:00.0" class="0x030200">
          <gpu dev="2" sm="90" rank="2" gdr="1"/>
        </pci>
      </pci>
    </pci>
  </cpu>
  <cpu numaid="1" affinity="ffff0000" arch="x86_64" vendor="AuthenticAMD" familyid="175" modelid="1">
    <pci busid="0000:81:00.0" class="0x030200">
      <gpu dev="3" sm="90" rank="3" gdr="1"/>
    </pci>
    <pci busid="0000:82:00.0" class="0x020000">
      <nic>
        <net name="mlx5_2" dev="2" speed="400000" port="1" guid="0x3" maxconn="131072" gdr="1"/>
      </nic>
    </pci>
  </cpu>
</system>
"""

HWLOC = """\
<?xml version="1.0" encoding="UTF-8"?>
<!DOCTYPE topology SYSTEM "hwloc2.dtd">
<topology version="2.0">
  <object type="Machine" os_index="0" nodeset="0x00000003" gp_index="1">
    <info name="OSName" value="Linux"/>
    <object type="Package" os_index="0" nodeset="0x00000001" gp_index="2">
      <object type="NUMANode" os_index="0" nodeset="0x00000001" gp_index="3" local_memory="1">
        <page_type size="4096" count="1"/>
      </object>
      <object type="Bridge" gp_index="10" bridge_type="0-1" depth="0" bridge_pci="0000:[00-0f]">
        <object type="Bridge" gp_index="11" bridge_type="1-1" depth="1" bridge_pci="0000:[01-0f]" \
pci_busid="0000:00:01.1" pci_type="0604 [1022:14ab] [1022:1453] 01" pci_link_speed="63.0">
          <object type="Bridge" gp_index="12" bridge_type="1-1" depth="2" bridge_pci="0000:[02-0f]" \
pci_busid="0000:01:00.0" pci_type="0604 [1000:c030] [1000:100b] b0" pci_link_speed="63.0">
            <object type="Bridge" gp_index="13" bridge_type="1-1" depth="3" bridge_pci="0000:[03-03]" \
pci_busid="0000:02:00.0" pci_type="0604 [1000:c030] [1000:100b] b0" pci_link_speed="63.0">
              <object type="PCIDev" gp_index="14" pci_busid="0000:03:00.0" \
pci_type="0302 [10de:2330] [10de:16c1] a1" pci_link_speed="63.0">
                <object type="OSDev" gp_index="15" name="nvml0" subtype="NVML" osdev_type="1"/>
              </object>
            </object>
            <object type="Bridge" gp_index="16" bridge_type="1-1" depth="3" bridge_pci="0000:[04-04]" \
pci_busid="0000:02:01.0" pci_type="0604 [1000:c030] [1000:100b] b0" pci_link_speed="63.0">
              <object type="PCIDev" gp_index="17" pci_busid="0000:04:00.0" \
pci_type="0302 [10de:2330] [10de:16c1] a1" pci_link_speed="63.0"/>
            </object>
            <object type="Bridge" gp_index="18" bridge_type="1-1" depth="3" bridge_pci="0000:[05-05]" \
pci_busid="0000:02:02.0" pci_type="0604 [1000:c030] [1000:100b] b0" pci_link_speed="63.0">
              <object type="PCIDev" gp_index="19" pci_busid="0000:05:00.0" \
pci_type="0207 [15b3:1021] [15b3:0041] 00" pci_link_speed="63.0">
                <object type="OSDev" gp_index="20" name="ib0" osdev_type="2"/>
                <object type="OSDev" gp_index="21" name="mlx5_0" osdev_type="3"/>
              </object>
              <object type="PCIDev" gp_index="22" pci_busid="0000:05:00.1" \
pci_type="0207 [15b3:1021] [15b3:0041] 00" pci_link_speed="63.0">
                <object type="OSDev" gp_index="23" name="ib1" osdev_type="2"/>
                <object type="OSDev" gp_index="24" name="mlx5_1" osdev_type="3"/>
              </object>
            </object>
            <object type="Bridge" gp_index="25" bridge_type="1-1" depth="3" bridge_pci="0000:[06-0f]" \
pci_busid="0000:02:03.0" pci_type="0604 [1000:c030] [1000:100b] b0" pci_link_speed="63.0">
              <object type="Bridge" gp_index="26" bridge_type="1-1" depth="4" bridge_pci="0000:[07-0f]" \
pci_busid="0000:06:00.0" pci_type="0604 [1000:c030] [1000:100b] b0" pci_link_speed="63.0">
                <object type="Bridge" gp_index="27" bridge_type="1-1" depth="5" bridge_pci="0000:[08-08]" \
pci_busid="0000:07:00.0" pci_type="0604 [1000:c030] [1000:100b] b0" pci_link_speed="63.0">
                  <object type="PCIDev" gp_index="28" pci_busid="0000:08:00.0" \
pci_type="0302 [10de:2330] [10de:16c1] a1" pci_link_speed="63.0"/>
                </object>
              </object>
            </object>
          </object>
        </object>
        <object type="PCIDev" gp_index="29" pci_busid="0000:00:02.0" pci_type="0300 [1a03:2000] [1a03:2000] 52"/>
      </object>
    </object>
    <object type="Package" os_index="1" nodeset="0x00000002" gp_index="4">
      <object type="NUMANode" os_index="1" nodeset="0x00000002" gp_index="5" local_memory="1"/>
      <object type="Bridge" gp_index="40" bridge_type="0-1" depth="0" bridge_pci="0000:[80-82]">
        <object type="Bridge" gp_index="41" bridge_type="1-1" depth="1" bridge_pci="0000:[81-81]" \
pci_busid="0000:80:01.1" pci_type="0604 [1022:14ab] [1022:1453] 01">
          <object type="PCIDev" gp_index="42" pci_busid="0000:81:00.0" pci_type="0302 [10de:2330] [10de:16c1] a1"/>
        </object>
        <object type="Bridge" gp_index="43" bridge_type="1-1" depth="1" bridge_pci="0000:[82-82]" \
pci_busid="0000:80:03.1" pci_type="0604 [1022:14ab] [1022:1453] 01">
          <object type="PCIDev" gp_index="44" pci_busid="0000:82:00.0" pci_type="0200 [15b3:1021] [15b3:0041] 00">
            <object type="OSDev" gp_index="45" name="mlx5_2" osdev_type="3"/>
          </object>
        </object>
      </object>
    </object>
  </object>
  <support name="discovery.pu"/>
</topology>
"""

ROCM = """\

============================ ROCm System Management Interface ============================
================================ Weight between two GPUs =================================
       GPU0         GPU1         GPU2
GPU0   0            15           40
GPU1   15           0            40
GPU2   40           40           0

=============================== Link Type between two GPUs ===============================
       GPU0         GPU1         GPU2
GPU0   0            XGMI         PCIE
GPU1   XGMI         0            PCIE
GPU2   PCIE         PCIE         0

======================================= Numa Nodes =======================================
GPU[0]          : (Topology) Numa Node: 0
GPU[0]          : (Topology) Numa Affinity: 0
GPU[1]          : (Topology) Numa Node: 0
GPU[1]          : (Topology) Numa Affinity: 0
GPU[2]          : (Topology) Numa Node: -1
GPU[2]          : (Topology) Numa Affinity: -1
================================== End of ROCm SMI Log ===================================
"""
