// SPDX-License-Identifier: GPL-2.0
// Sessions of a read-only view: all that is in its base is read, nothing is changed.
#include <gtest/gtest.h>

#include "client.hpp"

namespace remora::test {

namespace {

class View : public testing::TestWithParam<rmem_integrity> {
protected:
    Client writer{GetParam()}, reader{GetParam(), 1, 0, true};
};

INSTANTIATE_TEST_SUITE_P(Levels, View, testing::Values(RMEM_LINK, RMEM_DIGEST, RMEM_FULL));

TEST_P(View, ShowsItsBase) {
    std::uint32_t page = pair().page_bytes();
    unsigned int region = writer.allocate(2 * page);
    unsigned int fixed = writer.allocate(page, RMEM_PERM_READ);
    Bytes data = random_bytes(1000);
    EXPECT_EQ(writer.write(region, page - 500, data), RMEM_OK);
    EXPECT_EQ(reader.read(region, page - 500, 1000), data);
    EXPECT_EQ(reader.read(fixed, 0, 100), Bytes(100, 0));
    EXPECT_EQ(reader.ask(reader.read_request(region, 2 * page, 1)), RMEM_FAULT);
    Answer answer = pair().ask_one(
        reader.vector_request(RMEM_READV, {{region, page - 500, 100}, {fixed, 5, 1}}));
    EXPECT_EQ(answer.head.status, RMEM_OK);
    data.resize(100);
    data.push_back(0);
    EXPECT_EQ(answer.payload, data);
    EXPECT_EQ(reader.ask(reader.request(RMEM_FENCE)), RMEM_OK);
}

TEST_P(View, RefusesEveryChange) {
    std::uint32_t page = pair().page_bytes();
    unsigned int region = writer.allocate(2 * page);
    EXPECT_EQ(writer.write(region, 0, Bytes(1000, 7)), RMEM_OK);
    std::vector<Message> changes = {
        reader.write_request(region, 0, {1, 2, 3}),
        reader.write_request(region, 3 * page, {1, 2, 3}),
        reader.write_request(no_region, 0, {1, 2, 3}),
        reader.clear_request(RMEM_ZERO, region, 0, 2 * page),
        reader.clear_request(RMEM_ZERO, region, 1, page),
        reader.clear_request(RMEM_DISCARD, region, 0, 2 * page),
        reader.atomic_request(RMEM_ADD, region, 0, 8, 1),
        reader.atomic_request(RMEM_CAS, region, 0, 8, 1, 0),
        reader.put_request(region, 0, {1, 2, 3}, RMEM_ADD, region, 8, 8, 1),
        reader.vector_request(RMEM_WRITEV, {{region, 0, 2}, {region, 50, 1}}, {1, 2, 3}),
        reader.copy_request(region, page, region, 0, 100),
        reader.alloc_request(page, RMEM_PERM_READ | RMEM_PERM_WRITE),
        reader.alloc_request(page, RMEM_PERM_READ),
        reader.alloc_request(0, 0),
        reader.free_request(region, 2 * page),
        reader.free_request(region, 1),
        reader.publish_request(region, "mine"),
        reader.withdraw_request("mine"),
    };
    // A copy, told no lower floor than the last of them, has the same answer.
    for (int copy = 0; copy < 2; copy++) {
        for (Message& change : changes) {
            change.head.floor = changes.front().head.id;
            EXPECT_EQ(reader.ask(change), RMEM_PERM) << "type " << int{change.head.type};
        }
    }
    EXPECT_EQ(reader.read(region, 0, 1000), Bytes(1000, 7));
    EXPECT_EQ(reader.ask(changes.front()), RMEM_STALE) << "its sender went on";
    EXPECT_EQ(writer.write(region, 0, {8}), RMEM_OK);
}

TEST_P(View, KeysAreOfOneOfTheTwo) {
    unsigned int region = writer.allocate(1);
    Message write = writer.write_request(region, 0, {1});
    write.key = pair().view_key();
    EXPECT_TRUE(pair().ask(write).empty());
    Message read = reader.read_request(region, 0, 1);
    read.key = pair().key();
    EXPECT_TRUE(pair().ask(read).empty());
    // With the right one, but the other's session.
    Message stolen = reader.write_request(region, 0, {1});
    stolen.head.session = writer.session;
    stolen.from = 0;
    EXPECT_EQ(reader.ask(stolen), RMEM_INVALID);
    EXPECT_EQ(reader.read(region, 0, 1), Bytes{0});
}

} // namespace

} // namespace remora::test
