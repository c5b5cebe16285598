// SPDX-License-Identifier: GPL-2.0
// A tree of numbered keys in a node's memory, searched by reads or by the offload. remora-tree and
// bench-calls share it.
#pragma once

#include <remote/remote.h>

#include "apps/tree/tree.hpp"
#include "support/failure.hpp"

namespace remora::tree {

enum class Keys {
    random, // spread over 64 bits, as hashes are
    dense,  // 0, 1, 2 ...
};

// A different key for each number.
inline std::uint64_t key_of(std::uint64_t number, Keys keys) {
    if (keys == Keys::dense)
        return number;
    // SplitMix64's mixing, which has an inverse.
    number += 0x9e3779b97f4a7c15;
    number = (number ^ number >> 30) * 0xbf58476d1ce4e5b9;
    number = (number ^ number >> 27) * 0x94d049bb133111eb;
    return number ^ number >> 31;
}

class RemoteTree {
public:
    // The value of each key is its number.
    RemoteTree(remote_t* r, std::uint64_t count, Keys keys) : r_(r), keys_(keys) {
        std::vector<Item> items(count);
        for (std::uint64_t n = 0; n < count; n++)
            items[n] = {key_of(n, keys), n};
        std::ranges::sort(items, {}, &Item::key);
        Plan plan(items);
        bytes_ = plan.bytes();
        nodes_ = plan.nodes();
        must(remote_alloc(r_, bytes_, REMOTE_RW, &memory_), "alloc");
        try {
            root_ = plan.build(memory_, [&](raddr_t at, const void* data, std::size_t bytes) {
                must(remote_write(r_, at, data, bytes), "write");
            });
        } catch (...) {
            remote_free(r_, memory_);
            throw;
        }
    }
    ~RemoteTree() { remote_free(r_, memory_); }
    RemoteTree(const RemoteTree&) = delete;
    RemoteTree& operator=(const RemoteTree&) = delete;

    std::uint64_t bytes() const { return bytes_; }
    std::uint64_t nodes() const { return nodes_; }

    Found by_reads(std::uint64_t number) const {
        return find(root_, key_of(number, keys_),
                    [this](raddr_t at, void* data, std::size_t bytes) {
                        must(remote_read(r_, at, data, bytes), "read");
                    });
    }
    Found by_query(std::uint64_t number) const {
        const tree_args args{htole64(root_), htole64(key_of(number, keys_))};
        tree_found found{};
        remote_function what{};
        what.offload = TREE_ID;
        what.function = TREE_FIND;
        what.args = &args;
        what.args_bytes = sizeof(args);
        what.result = &found;
        what.result_bytes = sizeof(found);
        const int error = remote_query(r_, &what);
        if (error == -ENOSYS)
            throw Failure("the node has no offload tree for this space: remora node offload load");
        must(error, "query");
        if (what.result_bytes != sizeof(found))
            throw Failure("query: a result of {} bytes", what.result_bytes);
        return {le64toh(found.addr), le64toh(found.value), le32toh(found.levels)};
    }

private:
    static void must(int error, const char* what) {
        if (error)
            throw Failure("{}: {}", what, remote_strerror(error));
    }

    remote_t* r_;
    Keys keys_;
    std::uint64_t bytes_ = 0, nodes_ = 0;
    raddr_t memory_ = 0, root_ = 0;
};

} // namespace remora::tree
