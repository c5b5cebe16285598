// SPDX-License-Identifier: GPL-2.0
#include <gtest/gtest.h>

#include <set>
#include <string>

#include "wire_rig.hpp"

namespace {

using namespace wire;

const rmem_type_row& row_of(uint8_t type) {
    return rmem_type_table[type];
}

TEST(Types, EveryTypeHasOneRow) {
    ASSERT_EQ(requests.size(), size_t{RMEM_TYPE_END - RMEM_OPEN});
    std::set<std::string> names;
    for (uint8_t type = RMEM_OPEN; type < RMEM_TYPE_END; type++) {
        EXPECT_EQ(requests[type - RMEM_OPEN], type) << "rows are in the order of the types";
        ASSERT_TRUE(row_of(type).name) << int(type);
        EXPECT_TRUE(names.insert(row_of(type).name).second) << row_of(type).name;
    }
}

TEST(Types, SymbolsNameEveryType) {
    struct {
        unsigned long mask;
        const char* name;
    } const symbols[] = {RMEM_TYPE_SYMBOLS};
    ASSERT_EQ(std::size(symbols), requests.size() + 1);
    for (size_t i = 0; i < requests.size(); i++) {
        EXPECT_EQ(symbols[i].mask, requests[i]);
        EXPECT_STREQ(symbols[i].name, row_of(requests[i]).name);
    }
}

// Restrictions that the code which reads the rows relies on.
TEST(Types, RowsAreConsistent) {
    for (uint8_t type : requests) {
        const rmem_type_row& row = row_of(type);
        SCOPED_TRACE(row.name);
        EXPECT_LE(rmem_type_answers_data(type) && rmem_type_brings_data(type),
                  rmem_type_runs(type));
        EXPECT_FALSE(rmem_type_answers_data(type) && rmem_type_needs_mark(type))
            << "the data would have to be kept for copies of the request";
        EXPECT_FALSE(rmem_type_answers_data(type) && row.answer_bytes)
            << "an answer's data is alone";
        EXPECT_FALSE(rmem_type_has_ranges(type) && row.request_bytes);
        EXPECT_FALSE(rmem_type_has_ranges(type) && rmem_type_has_integer(type)) << "one op";
        EXPECT_LE(rmem_type_brings_data(type), rmem_type_changes(type) || rmem_type_runs(type));
        EXPECT_LE(rmem_type_is_cut(type),
                  rmem_type_answers_data(type) || rmem_type_brings_data(type));
        EXPECT_FALSE(rmem_type_runs(type) && !(row.flags & RMEM_TYPE_TAGGED));
        if (rmem_type_keeps_result(type)) {
            EXPECT_EQ(row.answer_bytes, sizeof(rmem_found)) << "what a session keeps";
        }
        EXPECT_FALSE(rmem_type_is_brief(type) && rmem_type_may_share(type));
        EXPECT_LE(rmem_type_is_of_session(type), rmem_type_is_brief(type));
        if (row.counted) {
            EXPECT_EQ(row_of(row.counted).counted, row.counted) << "a counter of its own";
            EXPECT_EQ(rmem_type_moves_bytes(row.counted), rmem_type_moves_bytes(type));
        }
        if (!rmem_type_may_share(type)) {
            EXPECT_LE(row.request_bytes, sizeof(rmem_node_call::in)) << "what a call has room for";
        }
    }
}

TEST(Types, ResponsesHaveTheirRequestsRow) {
    for (uint8_t type : requests) {
        EXPECT_EQ(rmem_type_flags(type | RMEM_RESPONSE), row_of(type).flags);
        EXPECT_EQ(rmem_type_may_share(type | RMEM_RESPONSE), rmem_type_may_share(type));
    }
}

// include/remora/rmem.h says in prose which these are.
TEST(Types, SetsMatchTheSpecification) {
    auto those = [](auto is) {
        std::string names;
        for (uint8_t type : requests)
            if (is(type))
                names += std::string(names.empty() ? "" : " ") + row_of(type).name;
        return names;
    };
    EXPECT_EQ(those(rmem_type_may_share),
              "read write discard zero atomic put readv writev copy query call");
    EXPECT_EQ(those(rmem_type_changes), "alloc free write discard zero atomic put writev copy "
                                        "publish call");
    EXPECT_EQ(those(rmem_type_answers_data), "read readv query");
    EXPECT_EQ(those(rmem_type_brings_data), "write put writev query call");
    EXPECT_EQ(those(rmem_type_needs_mark), those(rmem_type_changes));
    EXPECT_EQ(those(rmem_type_moves_bytes), "read write put readv writev copy");
    EXPECT_EQ(those(rmem_type_is_brief), "open close fence publish lookup");
    EXPECT_EQ(those(rmem_type_is_of_session), "open close");
    EXPECT_EQ(those(rmem_type_has_ranges), "readv writev");
    EXPECT_EQ(those(rmem_type_has_integer), "atomic put");
    EXPECT_EQ(those(rmem_type_is_exactly_once), "atomic put publish call");
    EXPECT_EQ(those(rmem_type_runs), "query call");
    EXPECT_EQ(those(rmem_type_keeps_result), "atomic put call");
    EXPECT_EQ(those(rmem_type_is_cut), "read write");
    EXPECT_EQ(those(rmem_type_copies), "copy");
    EXPECT_EQ(those(rmem_type_clears), "discard zero");
    EXPECT_EQ(those(rmem_type_has_name), "publish lookup list");
}

// A payload is the row's structure, then ranges, then data; the tag covers all but the data.
TEST(Types, PayloadAndTagFollowTheRow) {
    constexpr uint32_t data_bytes = 100;
    for (uint8_t type : requests) {
        const rmem_type_row& row = row_of(type);
        SCOPED_TRACE(row.name);
        rmem_head head{};
        head.type = type;
        head.len = data_bytes;
        head.op = rmem_type_has_ranges(type) ? 3 : 0;
        uint32_t frame = row.request_bytes + head.op * sizeof(rmem_range);
        uint32_t data = row.flags & RMEM_TYPE_DATA_IN ? data_bytes : 0;
        uint32_t tagged = row.flags & RMEM_TYPE_TAGGED ? data : 0;
        EXPECT_EQ(rmem_wire_payload_bytes(&head), frame + data);
        EXPECT_EQ(rmem_wire_tagged_bytes(&head), frame + tagged);
        head.integrity = RMEM_DIGEST;
        EXPECT_EQ(rmem_wire_has_digest(&head), data != tagged);
        head.integrity = RMEM_FULL;
        EXPECT_EQ(rmem_wire_tagged_bytes(&head), frame + data);
        EXPECT_FALSE(rmem_wire_has_digest(&head));

        head.type |= RMEM_RESPONSE;
        head.integrity = RMEM_DIGEST;
        data = row.flags & RMEM_TYPE_DATA_OUT ? data_bytes : 0;
        EXPECT_EQ(rmem_wire_payload_bytes(&head), row.answer_bytes + data);
        tagged = row.flags & RMEM_TYPE_TAGGED ? data : 0;
        EXPECT_EQ(rmem_wire_tagged_bytes(&head), row.answer_bytes + tagged);
        EXPECT_EQ(rmem_wire_has_digest(&head), data != tagged);
        head.status = RMEM_FAULT;
        EXPECT_EQ(rmem_wire_payload_bytes(&head), 0u);
    }
}

} // namespace
