# SPDX-License-Identifier: GPL-2.0
"""The netlink specifications say what the uapi headers say: every name, every number, none missing.

The numbers are the compiler's: each name of a specification becomes a _Static_assert behind the header.
"""

import pathlib
import re
import subprocess
import unittest

import yaml

ROOT = pathlib.Path(__file__).resolve().parents[3]
UAPI = ROOT / "include/uapi"
SPECS = sorted((UAPI / "specs").glob("*.yaml"))
# Names that bound an enum; a specification has no word for them.
BOUND = re.compile(r"^(__)?(RMEM|EQDS|EDM)_(NODE_|PATH_)?(CMD|A|COUNTER|TIMES)_(MAX|UNSPEC)$")


def c_name(name):
    return name.upper().replace("-", "_")


def numbered(entries, prefix, first):
    """{C name: number} of entries that count up, unless they say their value."""
    numbers, value = {}, first
    for entry in entries:
        entry = {"name": entry} if isinstance(entry, str) else entry
        value = entry.get("value", value)
        numbers[c_name(prefix + entry["name"])] = value
        value += 1
    return numbers


def spec_numbers(spec):
    """{C name: number} of everything a specification defines for its own header."""
    numbers = {}
    for definition in spec["definitions"]:
        if definition["type"] == "const":
            numbers[c_name(definition["name"])] = definition["value"]
        elif "header" not in definition:
            numbers |= numbered(definition["entries"], definition["name-prefix"],
                                definition["value-start"])
    for attributes in spec["attribute-sets"]:
        numbers |= numbered(attributes["attributes"], attributes["name-prefix"], 1)
    numbers |= numbered(spec["operations"]["list"], spec["operations"]["name-prefix"], 1)
    return numbers


def foreign_numbers(spec):
    """(header, {C name: number}) of each definition that another header makes."""
    return [(definition["header"], numbered(definition["entries"], definition["name-prefix"],
                                            definition["value-start"]))
            for definition in spec["definitions"] if "header" in definition]


def header_names(text):
    """Names a header defines, without those every header has."""
    bare = re.sub(r"/\*.*?\*/", "", text, flags=re.S)
    enums = "".join(re.findall(r"enum[^{};]*\{(.*?)\}", bare, re.S))
    names = set(re.findall(r"^\s*(\w+)", enums, re.M))
    names |= {name for name, value in re.findall(r"^#define\s+(\w+)[ \t]+(\S+)", bare, re.M)}
    return {name for name in names if not BOUND.match(name)}


def compile_asserts(header, numbers):
    """The compiler's complaint about numbers, "" if there is none."""
    source = f'#include "{header}"\n' + "".join(
        f'_Static_assert({name} == {value}, "{name} is not {value}");\n'
        for name, value in numbers.items())
    return subprocess.run(["gcc", "-std=gnu11", "-fsyntax-only", f"-I{UAPI}", f"-I{ROOT}/include",
                           "-x", "c", "-"], input=source, capture_output=True, text=True,
                          check=False).stderr


class Specs(unittest.TestCase):
    def each(self):
        for path in SPECS:
            with self.subTest(spec=path.name):
                spec = yaml.safe_load(path.read_text())
                yield spec, UAPI / spec["uapi-header"]

    def test_there_are_specs(self):
        self.assertEqual([path.stem for path in SPECS], ["edm", "eqds", "rmem", "rmem_node"])

    def test_numbers_agree(self):
        for spec, header in self.each():
            self.assertEqual(compile_asserts(header.name, spec_numbers(spec)), "")
            for foreign, numbers in foreign_numbers(spec):
                self.assertEqual(compile_asserts(foreign, numbers), "")

    def test_a_wrong_number_is_noticed(self):
        self.assertIn("RMEM_A_INDEX is not 3", compile_asserts("remora_rmem.h", {"RMEM_A_INDEX": 3}))

    def test_nothing_is_missing(self):
        for spec, header in self.each():
            names = {name for name in spec_numbers(spec) if not BOUND.match(name)}
            names |= {c_name(spec["c-family-name"]), c_name(spec["c-version-name"])}
            self.assertEqual(names, header_names(header.read_text()))

    def test_family(self):
        for spec, header in self.each():
            text = header.read_text()
            self.assertIn(f'#define {c_name(spec["c-family-name"])} "{spec["name"]}"\n', text)
            self.assertIn(f'#define {c_name(spec["c-version-name"])} {spec["version"]}\n', text)

    def test_references_exist(self):
        for spec, _ in self.each():
            sets = {entry["name"]: entry["attributes"] for entry in spec["attribute-sets"]}
            enums = {entry["name"] for entry in spec["definitions"] if entry["type"] == "enum"}
            for attribute in sum(sets.values(), []):
                self.assertIn(attribute.get("enum", "none"), enums | {"none"})
                self.assertIn(attribute.get("nested-attributes", "none"), set(sets) | {"none"})
            for operation in spec["operations"]["list"]:
                known = {entry["name"] for entry in sets[operation["attribute-set"]]}
                for how in ("do", "dump"):
                    for message in operation.get(how, {}).values():
                        self.assertLessEqual(set(message["attributes"]), known)


if __name__ == "__main__":
    unittest.main()
