// SPDX-License-Identifier: GPL-2.0
// A radix tree in remote memory, as tools/offloads/tree/tree.h lays it out: built from sorted items
// by writes, and searched by reads. The functions that write and read are the caller's.
#pragma once

#include <algorithm>
#include <bit>
#include <cstddef>
#include <cstdint>
#include <span>
#include <stdexcept>
#include <vector>

#include <endian.h>

#include "offloads/tree/tree.h"

namespace remora::tree {

struct Item {
    std::uint64_t key, value;
};

inline unsigned child_of(std::uint64_t key, unsigned level) {
    return key >> TREE_BITS * level & (TREE_CHILDREN - 1);
}

// All leaves in the order of their keys, then the nodes, each one behind its children. So the root
// comes last, and each child is written before the word that leads there.
class Plan {
public:
    // items: in ascending order of their keys, each key once; at least one. They stay.
    explicit Plan(std::span<const Item> items) : items_(items) {
        subtree(items, TREE_ROOT_LEVEL, [this](const tree_node&) {
            nodes_++;
            return std::uint64_t{0};
        });
    }

    std::uint64_t bytes() const { return nodes_at(0) + nodes_ * TREE_NODE_BYTES; }
    std::uint64_t nodes() const { return nodes_; }

    // Writes the tree to bytes() of memory at `base`, a multiple of TREE_NODE_BYTES, by
    // write(address, data, bytes) in pieces of up to 64 KiB. Returns the root's address.
    template <typename Write>
    std::uint64_t build(std::uint64_t base, const Write& write) {
        base_ = base;
        Pieces<tree_leaf, Write> leaves(base, write);
        for (const Item& item : items_)
            leaves.add({htole64(item.key), htole64(item.value)});
        leaves.flush();
        Pieces<tree_node, Write> nodes(nodes_at(base), write);
        subtree(items_, TREE_ROOT_LEVEL, [&](const tree_node& node) { return nodes.add(node); });
        nodes.flush();
        return base + bytes() - TREE_NODE_BYTES;
    }

private:
    // Writes things of one kind one behind the other, many at once.
    template <typename T, typename Write>
    class Pieces {
    public:
        Pieces(std::uint64_t at, const Write& write) : at_(at), write_(write) {
            waiting_.reserve(most);
        }
        std::uint64_t add(const T& thing) {
            if (waiting_.size() == most)
                flush();
            waiting_.push_back(thing);
            return at_ + (waiting_.size() - 1) * sizeof(T);
        }
        void flush() {
            if (!waiting_.empty())
                write_(at_, waiting_.data(), waiting_.size() * sizeof(T));
            at_ += waiting_.size() * sizeof(T);
            waiting_.clear();
        }

    private:
        static constexpr std::size_t most = 65536 / sizeof(T);
        std::uint64_t at_;
        const Write& write_;
        std::vector<T> waiting_;
    };

    std::uint64_t nodes_at(std::uint64_t base) const {
        const std::uint64_t leaves = items_.size() * sizeof(tree_leaf);
        return base + (leaves + TREE_NODE_BYTES - 1) / TREE_NODE_BYTES * TREE_NODE_BYTES;
    }

    // A node of this level for the items, which differ in no higher one; its address.
    template <typename Emit>
    std::uint64_t subtree(std::span<const Item> items, unsigned level, const Emit& emit) const {
        tree_node node{};
        while (!items.empty()) {
            const unsigned child = child_of(items.front().key, level);
            const auto end = std::ranges::partition_point(
                items, [&](const Item& item) { return child_of(item.key, level) == child; });
            const auto count = static_cast<std::size_t>(end - items.begin());
            node.word[child] = htole64(word(items.first(count), emit));
            items = items.subspan(count);
        }
        return emit(node);
    }

    template <typename Emit>
    std::uint64_t word(std::span<const Item> items, const Emit& emit) const {
        const std::uint64_t differ = items.front().key ^ items.back().key;
        if (!differ) {
            const auto number = static_cast<std::uint64_t>(&items.front() - items_.data());
            return (base_ + number * sizeof(tree_leaf)) | TREE_LEAF;
        }
        const unsigned level = static_cast<unsigned>(std::bit_width(differ) - 1) / TREE_BITS;
        return subtree(items, level, emit) | level << 1;
    }

    std::span<const Item> items_;
    std::uint64_t nodes_ = 0;
    std::uint64_t base_ = 0;
};

struct Found {
    std::uint64_t address, value; // address 0: there is no such key
    unsigned levels;              // reads that it took
};

// A search by read(address, data, bytes), one for each level.
template <typename Read>
Found find(std::uint64_t root, std::uint64_t key, const Read& read) {
    std::uint64_t node = root;
    unsigned level = TREE_ROOT_LEVEL, levels = 0;
    for (;;) {
        std::uint64_t word = 0;
        read(node + child_of(key, level) * sizeof(word), &word, sizeof(word));
        levels++;
        word = le64toh(word);
        if (!word)
            return {0, 0, levels};
        if (word & TREE_LEAF) {
            tree_leaf leaf{};
            read(word & ~std::uint64_t{TREE_LEAF_BYTES - 1}, &leaf, sizeof(leaf));
            levels++;
            if (le64toh(leaf.key) != key)
                return {0, 0, levels};
            return {word & ~std::uint64_t{TREE_LEAF_BYTES - 1}, le64toh(leaf.value), levels};
        }
        const auto lower = static_cast<unsigned>(word & (TREE_NODE_BYTES - 1)) >> 1;
        if (lower >= level)
            throw std::runtime_error("the tree is damaged: a child's level isn't below its node's");
        level = lower;
        node = word & ~std::uint64_t{TREE_NODE_BYTES - 1};
    }
}

} // namespace remora::tree
