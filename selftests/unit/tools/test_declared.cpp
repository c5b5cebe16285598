// SPDX-License-Identifier: GPL-2.0
// The files that declare a machine's state: their sections, and each mistake with its line.
#include <algorithm>
#include <filesystem>
#include <fstream>
#include <random>

#include <fmt/ranges.h>
#include <gtest/gtest.h>
#include <unistd.h>

#include "common/declared.hpp"
#include "common/nearest.hpp"

namespace remora::declared {

namespace {

State parse_one(const std::string& text) {
    return parse({{"f", text}});
}

std::string mistakes_of(const State& state) {
    std::string all;
    for (const Mistake& mistake : state.mistakes)
        all += mistake.text() + "\n";
    return all;
}

constexpr const char* device = "[device db]\nnode = 10.0.0.2\nkey = /k\n";

TEST(Declared, SectionsAndTheirValues) {
    const State state = parse_one("# a comment\n"
                                  "; another\n"
                                  "[node]\n"
                                  "  memory =16G\r\n"
                                  "\n"
                                  "[space 7]\n"
                                  "key=/etc/remora/a key\n"
                                  "[device db-1.x]\n"
                                  "node = fd00::2\n"
                                  "key = /k # no comment\n"
                                  "size = 8G\n"
                                  "swap = yes\n"
                                  "priority = 100\n"
                                  "[eqds eq0]\n"
                                  "link = eth0\n"
                                  "map = 10.1.0.0/16 10.0.0.2\n"
                                  "map = fd01::/64   fd00::2\n"
                                  "share = 10.1.0.2 0 4");
    ASSERT_EQ(mistakes_of(state), "");
    ASSERT_EQ(state.sections.size(), 4U);
    EXPECT_EQ(*state.find("node")->find("memory"), "16G");
    EXPECT_EQ(*state.find("space/7")->find("key"), "/etc/remora/a key");
    const Section& disk = *state.find("device/db-1.x");
    EXPECT_EQ(disk.place.line, 8U);
    EXPECT_EQ(*disk.find("key"), "/k # no comment");
    EXPECT_TRUE(disk.is_on("swap"));
    EXPECT_FALSE(disk.is_on("keep"));
    EXPECT_TRUE(disk.is_on("discard", true));
    EXPECT_EQ(disk.find("integrity"), nullptr);
    EXPECT_EQ(state.find("eqds/eq0")->all("map").size(), 2U);
    EXPECT_EQ(state.of("device").size(), 1U);
    EXPECT_EQ(state.find("device/other"), nullptr);
}

TEST(Declared, NothingIsNoMistake) {
    EXPECT_TRUE(parse({}).sections.empty());
    EXPECT_TRUE(parse_one("").mistakes.empty());
    EXPECT_TRUE(parse_one("\n\n# nothing").mistakes.empty());
}

struct Case {
    const char* name;
    std::string text;
    const char* says; // all of it, or its beginning
};

class DeclaredMistake : public testing::TestWithParam<Case> {};

TEST_P(DeclaredMistake, IsToldWithItsLine) {
    const std::string said = mistakes_of(parse_one(GetParam().text));
    EXPECT_TRUE(said.starts_with(GetParam().says)) << said;
    EXPECT_EQ(std::ranges::count(said, '\n'), 1) << said;
}

const std::string disk = std::string(device) + "size = 8G\n";

INSTANTIATE_TEST_SUITE_P(
    Table, DeclaredMistake,
    testing::Values(
        Case{"UnknownSection", "\n[devise db]\n",
             "f:2: there is no section [devise]: is it 'device'?"},
        Case{"UnknownSectionFarFromAll", "[x]",
             "f:1: there is no section [x]: write one of node, space"},
        Case{"EmptyHeading", "[]", "f:1: there is no section []"},
        Case{"OpenHeading", "[node\nmemory = 1G", "f:1: the heading has no ] at its end"},
        Case{"NodeWithName", "[node a]", "f:1: [node] has no name: remove 'a'"},
        Case{"DeviceWithoutName", "[device]", "f:1: a section [device NAME] has one name"},
        Case{"TwoNames", "[device a b]", "f:1: a section [device NAME] has one name"},
        Case{"NameWithSlash", "[device a/b]", "f:1: 'a/b' is not a name"},
        Case{"NameBeginsWithPoint", "[device .a]", "f:1: '.a' is not a name"},
        Case{"NameTooLong", "[device " + std::string(49, 'a') + "]", "f:1: 'aaaa"},
        Case{"SpaceIsNoNumber", "[space one]", "f:1: "},
        Case{"SpaceOtherwiseWritten", "[space 07]",
             "f:1: '07' is not the id of a space: write it as 7"},
        Case{"SectionTwice", disk + "[device db]\nsize = 1", "f:5: [device db] is in f:1, too"},
        Case{"KeyWithoutSection", "size = 8G\n", "f:1: the line belongs to no section"},
        Case{"UnknownKey", disk + "sice = 1\n", "f:5: [device] has no key 'sice': is it 'size'?"},
        Case{"UnknownKeyFarFromAll", disk + "colour = 1\n",
             "f:5: [device] has no key 'colour': write one of node, key, space"},
        Case{"NoEquals", disk + "swap\n", "f:5: 'swap' is not KEY = VALUE"},
        Case{"NoValue", disk + "swap =\n", "f:5: swap has no value"},
        Case{"KeyTwice", disk + "size = 8G\n", "f:5: size is there twice"},
        Case{"ControlCharacter", disk + "swap = \x01yes\n",
             "f:5: the line has a control character"},
        Case{"BadSize", std::string(device) + "size = 8X\n", "f:4: size: "},
        Case{"OddSize", std::string(device) + "size = 4097\n",
             "f:4: size: size 4097 is not a multiple"},
        Case{"SizeOf0", std::string(device) + "size = 0\n", "f:4: size: a size of 0"},
        Case{"NeitherYesNorNo", disk + "swap = on\n",
             "f:5: swap: 'on' is none of its values: write yes, no"},
        Case{"BadIntegrity", disk + "integrity = none\n",
             "f:5: integrity: 'none' is none of its values"},
        Case{"BadPriority", disk + "swap = yes\npriority = -1\n", "f:6: priority: "},
        Case{"RelativeKey", "[device db]\nnode = a\nkey = k\nsize = 8G\n",
             "f:3: key: 'k' is not an absolute path"},
        Case{"TwoNodes", "[device db]\nnode = a b\nkey = /k\nsize = 8G\n",
             "f:2: node: 'a b' is not a node"},
        Case{"KeyMissing", "[device db]\nnode = a\nsize = 8G\n",
             "f:1: key is missing in [device db]"},
        Case{"MemoryMissing", "[node]\n", "f:1: memory is missing in [node]"},
        Case{"NeitherSizeNorPrograms", device,
             "f:1: a device is a disk with a size, or has programs"},
        Case{"SizeAndPrograms", disk + "programs = yes\n",
             "f:1: a device is a disk with a size, or has programs"},
        Case{"ProgramsAsSwap", std::string(device) + "programs = yes\nswap = yes\n",
             "f:1: swap and keep are for disks"},
        Case{"SwapKept", disk + "swap = yes\nkeep = yes\n",
             "f:1: swap is of no use after a restart"},
        Case{"PriorityWithoutSwap", disk + "priority = 1\n",
             "f:1: priority and discard are for swap"},
        Case{"SpaceWithoutNode", "[space 1]\nkey = /k\n", "f:1: a space belongs to a node"},
        Case{"ViewOfNothing", "[node]\nmemory = 1G\n[space 2]\nkey = /k\nread-only-of = 1\n",
             "f:3: there is no [space 1] whose memory it is"},
        Case{"ViewWithQuota",
             "[node]\nmemory = 1G\n[space 2]\nkey = /k\nquota = 1G\nread-only-of = 2\n",
             "f:3: quota, read-only-of and member-of exclude each other"},
        Case{"MemberOfNothing", "[node]\nmemory = 1G\n[space 2]\nkey = /k\nmember-of = 1\n",
             "f:3: there is no [space 1] whose memory it is"},
        Case{"MemberAndView",
             "[node]\nmemory = 1G\n[space 2]\nkey = /k\nmember-of = 1\nread-only-of = 1\n"
             "[space 1]\nkey = /l\n",
             "f:3: quota, read-only-of and member-of exclude each other"},
        Case{"BadMap", "[eqds e]\nlink = eth0\nmap = 10.0.0.0/8\n",
             "f:3: map: '10.0.0.0/8' is not a map"},
        Case{"BadPrefix", "[eqds e]\nlink = eth0\nallow = 10.0.0.0/33\n", "f:3: allow: "},
        Case{"BadShare", "[eqds e]\nlink = eth0\nshare = 10.0.0.1 8 1\n", "f:3: share: "},
        Case{"LinkTooLong", "[eqds e]\nlink = abcdefghijklmnop\n", "f:2: link: "}),
    [](const auto& each) { return each.param.name; });

TEST(Declared, EachMistakeOfAFileIsTold) {
    const State state = parse_one("[device a]\nnod = x\nsice = 1\n[device b]\nnode = h\nkey = /k\n"
                                  "size = 1M\n[nod]\nlink = skipped\n");
    EXPECT_EQ(mistakes_of(state), "f:2: [device] has no key 'nod': is it 'node'?\n"
                                  "f:3: [device] has no key 'sice': is it 'size'?\n"
                                  "f:8: there is no section [nod]: is it 'node'?\n");
    ASSERT_EQ(state.sections.size(), 1U) << "those with a mistake are left out";
    EXPECT_EQ(state.sections[0].name, "b");
}

TEST(Declared, MistakesNameTheirFile) {
    const State state = parse({{"one", disk}, {"two", "\n[device db]\n"}, {"three", "x\n"}});
    EXPECT_EQ(mistakes_of(state), "two:2: [device db] is in one:1, too: remove one\n"
                                  "three:1: the line belongs to no section: write [node], [device "
                                  "NAME] ... before\n");
}

TEST(Declared, FilesAreReadInOrder) {
    namespace fs = std::filesystem;
    const fs::path folder = fs::temp_directory_path() / fmt::format("declared-{}", getpid());
    EXPECT_TRUE(read((folder / "none").string()).empty());
    fs::create_directories(folder / "remora.conf.d");
    for (const char* name :
         {"remora.conf.d/b.conf", "remora.conf.d/a.conf", "remora.conf", "remora.conf.d/c.txt"})
        std::ofstream(folder / name) << name;
    std::ofstream(folder / "remora.conf.d/d.conf"); // empty
    std::vector<std::string> texts;
    for (const Source& source : read(folder.string()))
        texts.push_back(source.text);
    EXPECT_EQ(texts, (std::vector<std::string>{"remora.conf", "remora.conf.d/a.conf",
                                               "remora.conf.d/b.conf", ""}));
    fs::remove_all(folder);
}

// Parsing of any text ends, and each mistake lies in one of its lines.
TEST(Declared, RandomTextHasMistakesInItsLines) {
    const std::vector<std::string> pieces = {"[",
                                             "]",
                                             "\n",
                                             "=",
                                             " ",
                                             "device",
                                             "node",
                                             "space 1",
                                             "eqds",
                                             "size",
                                             "8G",
                                             "key",
                                             "/k",
                                             "link",
                                             "map",
                                             "swap",
                                             "yes",
                                             "10.0.0.1/8",
                                             "#",
                                             "\x01",
                                             "share",
                                             "quota",
                                             "\xff",
                                             "[node]",
                                             "[device a]\n",
                                             "read-only-of = 1\n",
                                             "\r\n"};
    std::mt19937 random(1);
    for (int i = 0; i < 3000; i++) {
        std::string text;
        for (unsigned length = random() % 40; length; length--)
            text += pieces[random() % pieces.size()];
        const auto lines = static_cast<unsigned>(std::ranges::count(text, '\n') + 1);
        const State state = parse_one(text);
        for (const Mistake& mistake : state.mistakes)
            ASSERT_TRUE(mistake.place.line >= 1 && mistake.place.line <= lines) << text;
    }
}

TEST(Nearest, FindsMisspeltWords) {
    EXPECT_EQ(nearest("sice", {"size", "space"}), "size");
    EXPECT_EQ(nearest("fail-aftr", {"fail-after", "key"}), "fail-after");
    EXPECT_EQ(nearest("colour", {"size", "space"}), "");
    EXPECT_EQ(nearest("x", {}), "");
}

} // namespace

} // namespace remora::declared
