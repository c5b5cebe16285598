# SPDX-License-Identifier: GPL-2.0
"""Topology files: which machines there are and how they are joined.

    [machine compute]           RAM, CPUs, kernel, role, network card: all but RAM have defaults
    ram = 512M
    role = client

    [link rack]                 an Ethernet link of two machines, or a LAN of more
    mtu = 9000
    compute = 10.0.0.1/24 fd00::1/64
    memory = 10.0.0.2/24 fd00::2/64

    [ntb fabric]                a PCIe non-transparent bridge (ntb.py): each machine has the others' RAM in PCI BARs
    ports = compute memory      in the order of their port numbers
    deny = compute-memory       pairs of them that can't reach each other
    window = 1M                 of each machine into each other's RAM, at most

The n-th link of a machine, in the order of the file, is its eth(n). In every machine, `memory` is
machine memory's IPv4 address on the first link they share, `memory-rack` the one on link rack;
`memory6` and `memory6-rack` are the IPv6 ones.
"""

import configparser
import dataclasses
import ipaddress
import pathlib

from . import cache
from .say import LabError

# As in include/remora/ntb.h.
NTB_PORTS_MAX = 15
# Above, physical addresses are no longer offsets in the file of a machine's RAM.
NTB_RAM_MIB_MAX = 2048
# Network cards of machines, and their modules.
NICS = {"virtio": "virtio_net", "e1000": "e1000"}

DIRECTORY = cache.LAB / "topo"
_RAM_UNITS = {"M": 1, "G": 1024}


@dataclasses.dataclass
class MachineSpec:
    name: str
    ram_mib: int
    cpus: int = 2
    kernel: str = "6.12"
    role: str = ""
    nic: str = "virtio"


@dataclasses.dataclass
class LinkSpec:
    name: str
    mtu: int = 9000
    addresses: dict = dataclasses.field(default_factory=dict)  # machine name: [ip_interface]


@dataclasses.dataclass
class NtbSpec:
    name: str
    ports: list  # the machines' names, by port number
    access: list = dataclasses.field(default_factory=list)  # rules of its map (tools/mh), after "all may reach all"
    window_mib: int = 0  # 0: as the management host likes


@dataclasses.dataclass
class Topology:
    name: str
    machines: dict
    links: list
    ntbs: list

    def links_of(self, machine):
        return [link for link in self.links if machine in link.addresses]

    def hosts(self, viewer):
        """The lines of /etc/hosts as `viewer` needs them."""
        lines = ["127.0.0.1 localhost", "::1 localhost ip6-localhost"]
        named = set()
        for link in sorted(self.links, key=lambda link: viewer not in link.addresses):
            for machine, addresses in link.addresses.items():
                for address in addresses:
                    own = machine if address.version == 4 else machine + "6"
                    names = [f"{own}-{link.name}"] if own in named else [own, f"{own}-{link.name}"]
                    named.add(own)
                    lines.append(f"{address.ip} {' '.join(names)}")
        return "\n".join(lines) + "\n"


def _mib(what, text, where):
    number, unit = text[:-1], text[-1:].upper()
    if unit not in _RAM_UNITS or not number.isdigit() or not int(number):
        raise LabError(f"{where}: {what} = {text}: write it as 512M or 1G")
    return int(number) * _RAM_UNITS[unit]


def _machine(name, section, where):
    unknown = set(section) - {"ram", "cpus", "kernel", "role", "nic"}
    if unknown:
        raise LabError(f"{where}: [machine {name}] knows no '{min(unknown)}'")
    if "ram" not in section:
        raise LabError(f"{where}: [machine {name}] needs ram")
    nic = section.get("nic", "virtio")
    if nic not in NICS:
        raise LabError(f"{where}: [machine {name}] nic = {nic}: choose one of {', '.join(NICS)}")
    return MachineSpec(name, _mib("ram", section["ram"], where), int(section.get("cpus", 2)),
                       section.get("kernel", "6.12"), section.get("role", ""), nic)


def _link(name, section, machines, where):
    link = LinkSpec(name)
    for key, value in section.items():
        if key == "mtu":
            link.mtu = int(value)
        elif key in machines:
            try:
                link.addresses[key] = [ipaddress.ip_interface(word) for word in value.split()]
            except ValueError as error:
                raise LabError(f"{where}: [link {name}] {key}: {error}") from None
        else:
            raise LabError(f"{where}: [link {name}] names '{key}', which is no machine of this file")
    if len(link.addresses) < 2:
        raise LabError(f"{where}: [link {name}] joins fewer than two machines")
    return link


def _ntb(name, section, machines, where):
    where = f"{where}: [ntb {name}]"
    if "ports" not in section or set(section) - {"ports", "deny", "window"}:
        raise LabError(f"{where} needs ports, may have deny and window, and knows nothing else")
    ports = section["ports"].split()
    if not 2 <= len(ports) <= NTB_PORTS_MAX:
        raise LabError(f"{where} joins {len(ports)} machines: it can join 2 to {NTB_PORTS_MAX}")
    for each in ports:
        if each not in machines:
            raise LabError(f"{where} names '{each}', which is no machine of this file")
        if ports.count(each) > 1:
            raise LabError(f"{where} names '{each}' twice")
        ram_mib = machines[each].ram_mib
        if ram_mib & (ram_mib - 1) or not 64 <= ram_mib <= NTB_RAM_MIB_MAX:
            raise LabError(f"{where}: {each} has {ram_mib} MiB: a PCI BAR is a power of two, and here 64M to 2G")
    window_mib = _mib("window", section["window"], where) if "window" in section else 0
    return NtbSpec(name, ports, _denied(section.get("deny", ""), ports, where), window_mib)


def _denied(text, ports, where):
    """Rules of a map that keep pairs of machines from each other."""
    rules = []
    for word in text.split():
        pair = word.split("-")
        if len(pair) != 2 or not set(pair) <= set(ports):
            raise LabError(f"{where}: deny = {word}: write two of its machines as ONE-OTHER")
        rules += [{"from": one, "to": other, "may": "nothing"} for one, other in (pair, reversed(pair))]
    return rules


def _check_unique(links, ntbs, where):
    """The slots of a machine's PCI bus are one fabric's; link_down() finds either kind by its name."""
    for ntb in ntbs:
        if ntb.name in (link.name for link in links):
            raise LabError(f"{where}: '{ntb.name}' is a link and an NTB: give them two names")
    ports = [machine for ntb in ntbs for machine in ntb.ports]
    twice = next((each for each in ports if ports.count(each) > 1), None)
    if twice:
        raise LabError(f"{where}: machine {twice} is in two NTBs: it can be in one")


def load(name):
    """A topology by its name in tools/lab/topo, or by path."""
    path = pathlib.Path(name)
    if not path.suffix:
        path = DIRECTORY / f"{name}.topo"
    if not path.exists():
        known = ", ".join(sorted(p.stem for p in DIRECTORY.glob("*.topo")))
        raise LabError(f"no topology '{name}': there are {known}, or give the path of a .topo file")
    parser = configparser.ConfigParser(delimiters=("=",), interpolation=None)
    parser.optionxform = str
    machines, links, ntbs = {}, [], []
    try:
        parser.read(path)
        for title in parser.sections():
            kind, _, own = title.partition(" ")
            if kind == "machine" and own:
                machines[own] = _machine(own, parser[title], path.name)
            elif kind == "link" and own:
                links.append(_link(own, parser[title], machines, path.name))
            elif kind == "ntb" and own:
                ntbs.append(_ntb(own, parser[title], machines, path.name))
            else:
                raise LabError(f"{path.name}: [{title}] is none of [machine NAME], [link NAME], [ntb NAME]")
    except (configparser.Error, ValueError) as error:
        raise LabError(f"{path.name}: {error}") from None
    if not machines:
        raise LabError(f"{path.name}: no [machine NAME] in it")
    _check_unique(links, ntbs, path.name)
    return Topology(path.stem, machines, links, ntbs)
