# SPDX-License-Identifier: GPL-2.0
"""Topology files: which machines there are and how they are joined.

    [machine compute]           RAM, CPUs, kernel, role: all but RAM have defaults
    ram = 512M
    role = client

    [link rack]                 an Ethernet link of two machines, or a LAN of more
    mtu = 9000
    compute = 10.0.0.1/24 fd00::1/64
    memory = 10.0.0.2/24 fd00::2/64

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

DIRECTORY = cache.LAB / "topo"
_RAM_UNITS = {"M": 1, "G": 1024}


@dataclasses.dataclass
class MachineSpec:
    name: str
    ram_mib: int
    cpus: int = 2
    kernel: str = "6.12"
    role: str = ""


@dataclasses.dataclass
class LinkSpec:
    name: str
    mtu: int = 9000
    addresses: dict = dataclasses.field(default_factory=dict)  # machine name: [ip_interface]


@dataclasses.dataclass
class Topology:
    name: str
    machines: dict
    links: list

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


def _ram_mib(text, where):
    number, unit = text[:-1], text[-1:].upper()
    if unit not in _RAM_UNITS or not number.isdigit() or not int(number):
        raise LabError(f"{where}: ram = {text}: write it as 512M or 1G")
    return int(number) * _RAM_UNITS[unit]


def _machine(name, section, where):
    unknown = set(section) - {"ram", "cpus", "kernel", "role"}
    if unknown:
        raise LabError(f"{where}: [machine {name}] knows no '{min(unknown)}'")
    if "ram" not in section:
        raise LabError(f"{where}: [machine {name}] needs ram")
    return MachineSpec(name, _ram_mib(section["ram"], where), int(section.get("cpus", 2)),
                       section.get("kernel", "6.12"), section.get("role", ""))


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
    machines, links = {}, []
    try:
        parser.read(path)
        for title in parser.sections():
            kind, _, own = title.partition(" ")
            if kind == "machine" and own:
                machines[own] = _machine(own, parser[title], path.name)
            elif kind == "link" and own:
                links.append(_link(own, parser[title], machines, path.name))
            else:
                raise LabError(f"{path.name}: [{title}] is neither [machine NAME] nor [link NAME]")
    except (configparser.Error, ValueError) as error:
        raise LabError(f"{path.name}: {error}") from None
    if not machines:
        raise LabError(f"{path.name}: no [machine NAME] in it")
    return Topology(path.stem, machines, links)
