// SPDX-License-Identifier: GPL-2.0
// What people write on the command lines of remora and remora-node: sizes, times, addresses,
// spaces, devices, key files; and the report both nodes give.
#include <cstdlib>
#include <filesystem>
#include <fstream>

#include <gtest/gtest.h>
#include <nlohmann/json.hpp>
#include <sys/stat.h>

#include "common/node_report.hpp"
#include "support/failure.hpp"
#include "support/key.hpp"
#include "support/parse.hpp"

namespace remora {

namespace {

// ---- sizes and times ----

TEST(ParseSize, Units) {
    EXPECT_EQ(parse_size("0"), 0U);
    EXPECT_EQ(parse_size("4096"), 4096U);
    EXPECT_EQ(parse_size("4096B"), 4096U);
    EXPECT_EQ(parse_size("64KiB"), 65536U);
    EXPECT_EQ(parse_size("64k"), 65536U);
    EXPECT_EQ(parse_size("512M"), 512ULL << 20);
    EXPECT_EQ(parse_size("1G"), 1ULL << 30);
    EXPECT_EQ(parse_size("2TiB"), 2ULL << 40);
    EXPECT_EQ(parse_size("18446744073709551615"), UINT64_MAX);
    EXPECT_EQ(parse_size("16383P"), 16383ULL << 50);
}

TEST(ParseSize, Refuses) {
    for (const char* text : {"", "G", "-1", "1.5G", "1X", "1KB", "1 G", " 1", "1Gi", "1GiBs",
                             "0x10", "18446744073709551616", "16384P", "99999999999999999999999"})
        EXPECT_THROW(parse_size(text), Misuse) << text;
}

TEST(SizeText, RoundTripsEvenSizes) {
    for (std::uint64_t bytes :
         {0ULL, 1ULL, 1023ULL, 1024ULL, 64ULL << 10, 512ULL << 20, 3ULL << 40})
        EXPECT_EQ(parse_size(size_text(bytes)), bytes);
    EXPECT_EQ(size_text(512ULL << 20), "512M");
    EXPECT_EQ(size_text(3ULL << 29), "1.50G");
}

TEST(ParseSeconds, Milliseconds) {
    EXPECT_EQ(parse_seconds_ms("5"), 5000U);
    EXPECT_EQ(parse_seconds_ms("0.25"), 250U);
    EXPECT_EQ(parse_seconds_ms("0.001"), 1U);
    EXPECT_EQ(parse_seconds_ms("1.5"), 1500U);
    EXPECT_EQ(parse_seconds_ms("4294967.295"), UINT32_MAX);
    for (const char* text :
         {"", ".", "1.", ".5", "-1", "1s", "0.0001", "4294967.296", "4294968", "1e3"})
        EXPECT_THROW(parse_seconds_ms(text), Misuse) << text;
}

TEST(ParseSeconds, OutOfRangeIsRefusedWithTheRange) {
    EXPECT_EQ(parse_seconds_ms("0.001", 1, 30000, "--timeout"), 1U);
    EXPECT_EQ(parse_seconds_ms("30", 1, 30000, "--timeout"), 30000U);
    EXPECT_EQ(parse_seconds_ms("30.000", 1, 30000, "--timeout"), 30000U);
    for (const char* text : {"0", "0.000", "30.001", "31", "4294968", "x", "18446744073709551"}) {
        try {
            parse_seconds_ms(text, 1, 30000, "--timeout");
            ADD_FAILURE() << text;
        } catch (const Misuse& misuse) {
            EXPECT_EQ(misuse.what(), fmt::format("--timeout '{}' is not 0.001 to 30 seconds, with "
                                                 "at most 3 decimals",
                                                 text));
        }
    }
}

// ---- addresses ----

void expect_endpoint(const char* text, const char* host, std::uint16_t port) {
    Endpoint endpoint = parse_endpoint(text, 7670);
    EXPECT_EQ(endpoint.host, host) << text;
    EXPECT_EQ(endpoint.port, port) << text;
}

TEST(ParseEndpoint, HostsAndPorts) {
    expect_endpoint("node", "node", 7670);
    expect_endpoint("node:1", "node", 1);
    expect_endpoint("192.0.2.1:65535", "192.0.2.1", 65535);
    expect_endpoint("2001:db8::1", "2001:db8::1", 7670);
    expect_endpoint("::1", "::1", 7670);
    expect_endpoint("[2001:db8::1]", "2001:db8::1", 7670);
    expect_endpoint("[2001:db8::1]:80", "2001:db8::1", 80);
    expect_endpoint("[fe80::1%eth0]:80", "fe80::1%eth0", 80);
    expect_endpoint("fe80::1%eth0", "fe80::1%eth0", 7670);
}

TEST(ParseEndpoint, Refuses) {
    for (const char* text : {"", ":80", "[]", "[]:80", "[::1", "[::1]80", "[::1]:", "node:",
                             "node:0", "node:65536", "node:x", "node:-1", "node: 80"})
        EXPECT_THROW(parse_endpoint(text, 7670), Misuse) << text;
}

TEST(EndpointText, BracketsIpv6) {
    EXPECT_EQ(endpoint_text("node", 1), "node:1");
    EXPECT_EQ(endpoint_text("::1", 7670), "[::1]:7670");
}

// ---- spaces and devices ----

TEST(ParseSpace, IdFileQuotaBase) {
    SpaceOption plain = parse_space("1=/etc/key");
    EXPECT_EQ(plain.id, 1U);
    EXPECT_EQ(plain.key_file, "/etc/key");
    EXPECT_EQ(plain.quota_bytes, 0U);
    SpaceOption quota = parse_space("4294967295=a=b,c,quota=1G");
    EXPECT_EQ(quota.id, UINT32_MAX);
    EXPECT_EQ(quota.key_file, "a=b,c");
    EXPECT_EQ(quota.quota_bytes, 1ULL << 30);
    EXPECT_EQ(quota.read_only_of, 0U);
    SpaceOption view = parse_space("2=a=b,c,read-only-of=4294967295");
    EXPECT_EQ(view.id, 2U);
    EXPECT_EQ(view.key_file, "a=b,c");
    EXPECT_EQ(view.quota_bytes, 0U);
    EXPECT_EQ(view.read_only_of, UINT32_MAX);
    EXPECT_FALSE(plain.sealed_only || quota.sealed_only || view.sealed_only);
    SpaceOption sealed = parse_space("3=a=b,c,read-only-of=1,require=sealed");
    EXPECT_TRUE(sealed.sealed_only);
    EXPECT_EQ(sealed.key_file, "a=b,c");
    EXPECT_EQ(sealed.read_only_of, 1U);
    EXPECT_EQ(parse_space("3=k,quota=1G,require=sealed").quota_bytes, 1ULL << 30);
    SpaceOption member = parse_space("3=a=b,c,member-of=4294967295,require=sealed");
    EXPECT_EQ(member.key_file, "a=b,c");
    EXPECT_EQ(member.member_of, UINT32_MAX);
    EXPECT_TRUE(member.sealed_only);
    EXPECT_EQ(member.read_only_of, 0U);
    EXPECT_EQ(view.member_of, 0U);
    for (const char* text : {"",
                             "1",
                             "1=",
                             "0=k",
                             "x=k",
                             "4294967296=k",
                             "1=,quota=1G",
                             "1=k,quota=",
                             "1=k,quota=x",
                             "1=,read-only-of=2",
                             "1=k,read-only-of=",
                             "1=k,read-only-of=0",
                             "1=k,read-only-of=x",
                             "1=k,quota=1G,read-only-of=2",
                             "1=k,read-only-of=2,quota=1G",
                             "1=,member-of=2",
                             "1=k,member-of=",
                             "1=k,member-of=0",
                             "1=k,quota=1G,member-of=2",
                             "1=k,read-only-of=3,member-of=2",
                             "1=k,require=",
                             "1=k,require=full",
                             "1=,require=sealed",
                             "1=k,require=sealed,quota=1G"})
        EXPECT_THROW(parse_space(text), Misuse) << text;
}

TEST(ParseDevice, AllSpellings) {
    EXPECT_EQ(parse_device("0").index, 0U);
    EXPECT_EQ(parse_device("0").stem, "");
    EXPECT_EQ(parse_device("rmb17").index, 17U);
    EXPECT_EQ(parse_device("rmb17").stem, "rmb");
    EXPECT_EQ(parse_device("/dev/rmem3").stem, "rmem");
    EXPECT_EQ(parse_device("/dev/rmb4294967295").index, UINT32_MAX);
    for (const char* text : {"", "rmb", "/dev/rmb", "/dev/sda", "rmb1p1", "-1", "4294967296"})
        EXPECT_THROW(parse_device(text), Misuse) << text;
}

// ---- keys ----

class KeyFiles : public testing::Test {
protected:
    void SetUp() override { ASSERT_TRUE(mkdtemp(directory_.data())); }
    void TearDown() override { std::filesystem::remove_all(directory_); }
    std::string file(const char* name) const { return directory_ + "/" + name; }
    std::string holding(const std::string& text) const {
        std::ofstream(file("key")) << text;
        return file("key");
    }

private:
    std::string directory_ = std::filesystem::temp_directory_path() / "remora-cli-XXXXXX";
};

const std::string digits = "00112233445566778899aAbBcCdDeEfF";

TEST_F(KeyFiles, NewKeyIsReadBackAndItsOwnersAlone) {
    Key key = key_random();
    key_write(key, file("new"));
    struct stat status {};
    ASSERT_EQ(stat(file("new").c_str(), &status), 0);
    EXPECT_EQ(status.st_mode & 07777, 0600U);
    EXPECT_EQ(key_read(file("new")).key, key);
    EXPECT_FALSE(key_read(file("new")).exposed);
    EXPECT_THROW(key_write(key_random(), file("new")), Failure);
    EXPECT_EQ(key_read(file("new")).key, key) << "a key there is stays";
}

TEST_F(KeyFiles, WhiteSpaceAroundIsFine) {
    for (const std::string& text : {digits, digits + "\n", "\t " + digits + "\r\n\n"}) {
        Key key = key_read(holding(text)).key;
        EXPECT_EQ(key.front(), 0x00);
        EXPECT_EQ(key.back(), 0xff);
    }
    EXPECT_EQ(key_text(key_parse(digits, "test")), "00112233445566778899aabbccddeeff");
}

TEST_F(KeyFiles, InvalidKeyIsRefusedInOneLine) {
    for (const std::string& text :
         {std::string(), digits.substr(1), digits + "0", digits + digits, "x" + digits.substr(1),
          digits.substr(0, 16) + " " + digits.substr(16), std::string(100'000, '0')}) {
        try {
            key_read(holding(text));
            ADD_FAILURE() << "taken: " << text;
        } catch (const Failure& failure) {
            EXPECT_EQ(std::string(failure.what()).find('\n'), std::string::npos);
        }
    }
    EXPECT_THROW(key_read(file("none")), Failure);
    EXPECT_THROW(key_read(std::filesystem::temp_directory_path()), Failure);
}

TEST_F(KeyFiles, ReadableByOthersIsNoticed) {
    std::string key = holding(digits);
    for (auto [mode, exposed] :
         {std::pair<mode_t, bool>{0600, false}, {0640, true}, {0604, true}}) {
        ASSERT_EQ(chmod(key.c_str(), mode), 0);
        EXPECT_EQ(key_read(key).exposed, exposed) << mode;
    }
}

// ---- the node's report ----

TEST(NodeReport, JsonIsReadBack) {
    NodeReport report;
    report.started = true;
    report.boot = 0xfedc'ba98'7654'3210ULL;
    report.port = 7670;
    report.memory_bytes = 1ULL << 40;
    report.regions_max = 7;
    report.counters = {{"executed", 12}, {"drop-tag", 0}};
    nlohmann::ordered_json json = node_report_json(report);
    EXPECT_EQ(json["boot"], "fedcba9876543210");
    EXPECT_EQ(json["counters"]["executed"], 12);
    EXPECT_EQ(node_report_json(node_report_parse(json)), json);
    EXPECT_EQ(node_report_json(node_report_parse(node_report_json({}))), node_report_json({}));
    EXPECT_THROW(node_report_parse(nlohmann::ordered_json::parse("{}")), nlohmann::json::exception);
}

} // namespace

} // namespace remora
