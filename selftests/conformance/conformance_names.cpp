// SPDX-License-Identifier: GPL-2.0
// Names of regions: PUBLISH and LOOKUP; and a LIST of them.
#include <gtest/gtest.h>

#include <string>

#include "client.hpp"

namespace remora::test {

namespace {

class Name : public testing::TestWithParam<rmem_integrity> {
protected:
    // The region of that name by its symbol; no_region: none.
    unsigned int lookup(Client& who, std::string_view name, std::uint64_t bytes) {
        Answer answer = pair().ask_one(who.lookup_request(name));
        if (answer.head.status != RMEM_OK) {
            EXPECT_EQ(answer.head.status, RMEM_NO_NAME);
            return no_region;
        }
        EXPECT_EQ(answer.payload.size(), sizeof(rmem_range));
        EXPECT_EQ(base_load_le64(answer.payload.data() + offsetof(rmem_range, bytes)), bytes);
        return static_cast<unsigned int>(base_load_le64(answer.payload.data()));
    }

    Client client{GetParam()}, other{GetParam(), 1};
    const std::uint64_t page = pair().page_bytes();
};

INSTANTIATE_TEST_SUITE_P(Levels, Name, testing::Values(RMEM_LINK, RMEM_DIGEST, RMEM_FULL));

TEST_P(Name, PublishedRegionIsFoundByOthersUntilItIsFreed) {
    unsigned int region = client.allocate(3 * page), second = client.allocate(page);
    EXPECT_EQ(client.ask(client.publish_request(region, "a")), RMEM_OK);
    EXPECT_EQ(client.ask(client.publish_request(second, "b")), RMEM_OK);
    EXPECT_EQ(lookup(other, "a", 3 * page), region);
    Client reader(GetParam(), 2, 0, true);
    EXPECT_EQ(lookup(reader, "b", page), second);
    EXPECT_EQ(other.ask(other.publish_request(second, "a")), RMEM_EXISTS);
    EXPECT_EQ(client.ask(client.free_request(region, 3 * page)), RMEM_OK);
    EXPECT_EQ(lookup(other, "a", 0), no_region);
    EXPECT_EQ(lookup(other, "b", page), second);
}

TEST_P(Name, ListTellsEachRegionByItsAddress) {
    unsigned int region = client.allocate(3 * page);
    EXPECT_EQ(client.ask(client.publish_request(region, "a")), RMEM_OK);
    Message list = client.publish_request(region, "");
    list.head.type = RMEM_LIST;
    Answer answer = pair().ask_one(list);
    ASSERT_EQ(answer.head.status, RMEM_OK);
    ASSERT_EQ(answer.payload.size(), sizeof(rmem_listed));
    const std::uint8_t* listed = answer.payload.data();
    EXPECT_EQ(base_load_le64(listed), region);
    EXPECT_EQ(base_load_le64(listed + offsetof(rmem_listed, bytes)), 3 * page);
    EXPECT_EQ(base_load_le32(listed + offsetof(rmem_listed, perm)), 3U);
    EXPECT_EQ(base_load_le32(listed + offsetof(rmem_listed, names)), 1U);
    EXPECT_EQ(listed[offsetof(rmem_listed, name)], 'a');
    Message named = client.publish_request(region, "a");
    named.head.type = RMEM_LIST;
    EXPECT_EQ(client.ask(named), RMEM_INVALID);
}

TEST_P(Name, WithdrawnNameIsFree) {
    unsigned int region = client.allocate(page);
    EXPECT_EQ(client.ask(client.withdraw_request("a")), RMEM_NO_NAME);
    EXPECT_EQ(client.ask(client.publish_request(region, "a")), RMEM_OK);
    EXPECT_EQ(other.ask(other.withdraw_request("a")), RMEM_OK);
    EXPECT_EQ(lookup(client, "a", 0), no_region);
    EXPECT_EQ(client.ask(client.publish_request(region, "a")), RMEM_OK);
}

TEST_P(Name, DuplicateIsAnsweredAsTheFirstWas) {
    unsigned int region = client.allocate(page);
    client.floor = client.next_id;
    Message publish = client.publish_request(region, "a");
    Message refused = client.publish_request(region, "a");
    EXPECT_EQ(client.ask(publish), RMEM_OK);
    EXPECT_EQ(client.ask(refused), RMEM_EXISTS);
    EXPECT_EQ(client.ask(client.withdraw_request("a")), RMEM_OK);
    EXPECT_EQ(client.ask(publish), RMEM_OK);
    EXPECT_EQ(client.ask(refused), RMEM_EXISTS);
    EXPECT_EQ(lookup(client, "a", 0), no_region);
}

TEST_P(Name, MalformedNamesAreRefused) {
    unsigned int region = client.allocate(page);
    const std::string longest(RMEM_NAME_BYTES, 'x');
    EXPECT_EQ(client.ask(client.publish_request(region, longest)), RMEM_OK);
    EXPECT_EQ(lookup(other, longest, page), region);
    for (std::string_view name :
         {std::string_view(""), std::string_view("a\0b", 3), std::string_view("\0b", 2)}) {
        EXPECT_EQ(client.ask(client.publish_request(region, name)), RMEM_INVALID);
        EXPECT_EQ(client.ask(client.lookup_request(name)), RMEM_INVALID);
    }
    Message length = client.lookup_request("a");
    length.head.len--;
    EXPECT_EQ(client.ask(length), RMEM_INVALID);
    Message unknown = client.publish_request(region, "a");
    unknown.payload = [](const Names&) {
        return wire::bytes_of(wire::named_of("a", std::uint64_t{1} << 60));
    };
    EXPECT_EQ(client.ask(unknown), RMEM_FAULT);
}

TEST_P(Name, FloodOfNamesIsRefusedAtItsBound) {
    unsigned int region = client.allocate(page);
    for (std::uint32_t n = 0; n < RMEM_NAMES_MAX; n++)
        ASSERT_EQ(client.ask(client.publish_request(region, std::to_string(n))), RMEM_OK);
    EXPECT_EQ(client.ask(client.publish_request(region, "more")), RMEM_NO_MEMORY);
    EXPECT_EQ(other.ask(other.publish_request(region, "more")), RMEM_NO_MEMORY);
    EXPECT_EQ(client.ask(client.free_request(region, page)), RMEM_OK);
    region = client.allocate(page);
    EXPECT_EQ(client.ask(client.publish_request(region, "more")), RMEM_OK);
}

} // namespace

} // namespace remora::test
