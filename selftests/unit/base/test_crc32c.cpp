// SPDX-License-Identifier: GPL-2.0
#include <gtest/gtest.h>

#include <cstring>
#include <numeric>
#include <vector>

#include "../core.hpp"

namespace {

uint32_t crc(const std::vector<uint8_t>& data) {
    base_crc32c_setup();
    return base_crc32c_final(base_crc32c_update(BASE_CRC32C_SEED, data.data(), data.size()));
}

// RFC 3720, appendix B.4.
TEST(Crc32c, OfficialVectors) {
    std::vector<uint8_t> up(32), down(32);
    std::iota(up.begin(), up.end(), 0);
    std::iota(down.rbegin(), down.rend(), 0);
    EXPECT_EQ(crc(std::vector<uint8_t>(32, 0x00)), 0x8a9136aau);
    EXPECT_EQ(crc(std::vector<uint8_t>(32, 0xff)), 0x62a8ab43u);
    EXPECT_EQ(crc(up), 0x46dd794eu);
    EXPECT_EQ(crc(down), 0x113fdb5cu);

    std::vector<uint8_t> command(48);
    command[0] = 0x01;
    command[1] = 0xc0;
    command[16] = 0x14;
    command[22] = 0x04;
    command[27] = 0x14;
    command[31] = 0x18;
    command[32] = 0x28;
    command[40] = 0x02;
    EXPECT_EQ(crc(command), 0xd9963a56u);
}

TEST(Crc32c, CheckValue) {
    const char* digits = "123456789";
    EXPECT_EQ(crc(std::vector<uint8_t>(digits, digits + std::strlen(digits))), 0xe3069283u);
    EXPECT_EQ(crc({}), 0u);
}

TEST(Crc32c, ResultDoesNotDependOnCuts) {
    std::vector<uint8_t> data(61);
    std::iota(data.begin(), data.end(), 3);
    const uint32_t whole = crc(data);
    for (size_t cut = 0; cut <= data.size(); cut++) {
        uint32_t part = base_crc32c_update(BASE_CRC32C_SEED, data.data(), cut);
        part = base_crc32c_update(part, data.data() + cut, data.size() - cut);
        EXPECT_EQ(base_crc32c_final(part), whole) << cut;
    }
}

} // namespace
