// SPDX-License-Identifier: GPL-2.0
// Embedding rows, and the memo's entries, in remote memory and in this process.
#pragma once

#include <array>
#include <cstdint>
#include <string>
#include <vector>

#include <remote/remote.hpp>

#include "apps/dlrm/memo.hpp"
#include "offloads/dlrm/dlrm.h"

namespace remora::dlrm {

enum class Format { i8, f32 };

// The bits of a sum: integers, or floats.
using Sum = std::array<std::uint32_t, DLRM_DIM>;

struct Shape {
    Format format;
    std::uint32_t rows;

    dlrm_function function() const { return format == Format::i8 ? DLRM_SUM_I8 : DLRM_SUM_F32; }
    std::size_t row_bytes() const {
        return format == Format::i8 ? DLRM_I8_ROW_BYTES : DLRM_F32_ROW_BYTES;
    }
    std::size_t memo_bytes() const {
        return format == Format::i8 ? DLRM_I8_MEMO_BYTES : DLRM_F32_ROW_BYTES;
    }
    // A quarter of the table's memory.
    std::uint32_t entries_max() const {
        return static_cast<std::uint32_t>(rows * row_bytes() / memo_bytes() / 4);
    }
};

// Sum of rows, and of memo entries where a word has DLRM_MEMO.
Sum sum_rows(Format format, const std::byte* rows, const std::byte* memo,
             std::span<const std::uint32_t> words);
// sum += other
void add_sum(Format format, const Sum& other, Sum& sum);
// Without tables: by the numbers of the items.
Sum plain_sum(Format format, std::span<const std::uint32_t> ids);

// Memory in large pages, as a node has it.
class Pages {
public:
    explicit Pages(std::size_t bytes);
    ~Pages();
    Pages(const Pages&) = delete;
    std::byte* data() const { return data_; }
    std::size_t size() const { return bytes_; }

private:
    std::size_t bytes_;
    std::byte* data_;
};

// Rows, then the memo.
class LocalTable {
public:
    LocalTable(const Shape& shape, const Memo& memo);
    const Shape shape;
    // words: as Memo::rewrite() makes them
    Sum sum(std::span<const std::uint32_t> words) const {
        return sum_rows(shape.format, rows().data(), memo().data(), words);
    }
    std::span<const std::byte> rows() const {
        return {pages_.data(), shape.rows * shape.row_bytes()};
    }
    std::span<const std::byte> memo() const {
        return {pages_.data() + rows().size(), pages_.size() - rows().size()};
    }

private:
    Pages pages_;
};

// A copy in remote memory, freed at its end. Throws Failure.
class RemoteTable {
public:
    RemoteTable(const remote::handle& node, const LocalTable& table);
    raddr_t rows() const { return memory_.address(); }
    raddr_t memo() const { return memory_.address() + memo_at_; }
    std::uint32_t entries() const { return entries_; }
    const Shape shape;

private:
    void write(raddr_t to, std::span<const std::byte> from) const;

    std::size_t memo_at_;
    std::uint32_t entries_;
    remote::allocation memory_;
};

} // namespace remora::dlrm
