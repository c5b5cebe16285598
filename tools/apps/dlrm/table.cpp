// SPDX-License-Identifier: GPL-2.0
#include "apps/dlrm/table.hpp"

#include <algorithm>
#include <bit>
#include <cstring>

#include <sys/mman.h>

#include "support/failure.hpp"
#include "support/parse.hpp"

namespace remora::dlrm {

namespace {

// The same numbers as floats: sums of up to 2^17 rows are exact in any order.
constexpr float scale = 1.0F / 64;
constexpr std::size_t write_bytes = 1 << 20, align_bytes = 256;

static_assert(std::endian::native == std::endian::little,
              "tables lie in memory as the node has them");

// sum[] += row[], which the compiler makes vectors of: the number of columns is a constant.
template <typename From, typename To>
[[gnu::always_inline]] inline void add(const std::byte* row, std::array<To, DLRM_DIM>& sum) {
    std::array<From, DLRM_DIM> from;
    std::memcpy(from.data(), row, sizeof(from));
    for (unsigned n = 0; n < DLRM_DIM; n++)
        sum[n] += static_cast<To>(from[n]);
}

template <typename Row, typename Entry, typename To>
[[gnu::always_inline]] inline Sum sum_of(const std::byte* rows, const std::byte* memo,
                                         std::span<const std::uint32_t> words) {
    std::array<To, DLRM_DIM> sum{};
    for (std::uint32_t word : words) {
        const std::size_t index = word & ~DLRM_MEMO;
        if (word & DLRM_MEMO)
            add<Entry>(memo + index * DLRM_DIM * sizeof(Entry), sum);
        else
            add<Row>(rows + index * DLRM_DIM * sizeof(Row), sum);
    }
    return std::bit_cast<Sum>(sum);
}

template <typename To>
void put_number(std::byte*& at, To value) {
    std::memcpy(at, &value, sizeof(value));
    at += sizeof(value);
}

void put_row(Format format, bool narrow, std::span<const std::uint32_t> items, std::byte* at) {
    for (unsigned column = 0; column < DLRM_DIM; column++) {
        int number = 0;
        for (std::uint32_t item : items)
            number += Data::number(item, column);
        if (format == Format::f32)
            put_number(at, static_cast<float>(number) * scale);
        else if (narrow)
            put_number(at, static_cast<std::int8_t>(number));
        else
            put_number(at, static_cast<std::int16_t>(number));
    }
}

void must(int error, const char* what) {
    if (error)
        throw Failure("{}: {}", what, remote_strerror(error));
}

} // namespace

[[gnu::target_clones("avx2", "default")]] Sum sum_rows(Format format, const std::byte* rows,
                                                       const std::byte* memo,
                                                       std::span<const std::uint32_t> words) {
    if (format == Format::i8)
        return sum_of<std::int8_t, std::int16_t, std::uint32_t>(rows, memo, words);
    return sum_of<float, float, float>(rows, memo, words);
}

void add_sum(Format format, const Sum& other, Sum& sum) {
    for (unsigned n = 0; n < DLRM_DIM; n++) {
        if (format == Format::i8)
            sum[n] += other[n];
        else
            sum[n] = std::bit_cast<std::uint32_t>(std::bit_cast<float>(sum[n]) +
                                                  std::bit_cast<float>(other[n]));
    }
}

Sum plain_sum(Format format, std::span<const std::uint32_t> ids) {
    Sum sum;
    for (unsigned column = 0; column < DLRM_DIM; column++) {
        int number = 0;
        for (std::uint32_t id : ids)
            number += Data::number(id, column);
        sum[column] = format == Format::i8
                          ? static_cast<std::uint32_t>(number)
                          : std::bit_cast<std::uint32_t>(static_cast<float>(number) * scale);
    }
    return sum;
}

Pages::Pages(std::size_t bytes) : bytes_(bytes) {
    void* at = mmap(nullptr, bytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    if (at == MAP_FAILED)
        throw Failure("no {} of memory for the table: {}: lower --items", size_text(bytes),
                      std::strerror(errno));
    madvise(at, bytes, MADV_HUGEPAGE); // advice only
    data_ = static_cast<std::byte*>(at);
}

Pages::~Pages() {
    munmap(data_, bytes_);
}

LocalTable::LocalTable(const Shape& shape, const Memo& memo)
    : shape(shape), pages_(shape.rows * shape.row_bytes() + memo.entries() * shape.memo_bytes()) {
    std::byte* at = pages_.data();
    for (std::uint32_t id = 0; id < shape.rows; id++, at += shape.row_bytes())
        put_row(shape.format, true, std::span(&id, 1), at);
    memo.each([&](std::span<const std::uint32_t> items) {
        put_row(shape.format, false, items, at);
        at += shape.memo_bytes();
    });
}

// The memo begins at a multiple of an entry's size, so that none lies in two pages.
RemoteTable::RemoteTable(const remote::handle& node, const LocalTable& table)
    : shape(table.shape),
      memo_at_((table.rows().size() + align_bytes - 1) / align_bytes * align_bytes),
      entries_(static_cast<std::uint32_t>(table.memo().size() / shape.memo_bytes())) {
    auto made = remote::allocation::make(node, memo_at_ + table.memo().size(),
                                         REMOTE_RW | REMOTE_OWN_PAGES);
    must(made.error(), "can't allocate the table");
    memory_ = std::move(*made);
    write(rows(), table.rows());
    write(memo(), table.memo());
}

void RemoteTable::write(raddr_t to, std::span<const std::byte> from) const {
    for (std::size_t at = 0; at < from.size(); at += write_bytes)
        must(remote_write(memory_.get(), to + at, from.data() + at,
                          std::min(write_bytes, from.size() - at)),
             "can't write the table");
}

} // namespace remora::dlrm
