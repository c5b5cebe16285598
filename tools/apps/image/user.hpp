// SPDX-License-Identifier: GPL-2.0
/*
 * A user of Clio's image utility (ASPLOS'22, section 6): two arrays in remote memory, one of
 * pictures and one of JPEGs.
 *
 *   fill()          pictures are written, and one is compressed and decompressed as a warm-up
 *   compress(n)     picture n is read, compressed, and written to the other array
 *   decompress(n)   JPEG n is read, decompressed, and written over picture n
 *
 * Each checks the bytes that it read, and reads those that it wrote once more.
 */
#pragma once

#include <cstdint>
#include <memory>
#include <string>

#include <remote/queue.h>
#include <remote/remote.hpp>

#include "apps/image/picture.hpp"

namespace remora::image {

class User {
public:
    // number: from 1. Throws Failure, as the other functions do.
    User(const std::string& target, std::uint32_t number, std::uint32_t pictures, int quality,
         const Album& album);

    void fill();
    void compress(std::uint32_t n);
    void decompress(std::uint32_t n);

private:
    // At the begin of a JPEG's place.
    struct Head {
        std::uint64_t bytes;
    };
    raddr_t picture_at(std::uint32_t n) const { return pictures_.address() + n * picture_bytes; }
    raddr_t jpeg_at(std::uint32_t n) const;
    void transfer(const remote_op& op, const char* what) const;
    void read(raddr_t from, std::span<std::byte> to) const;
    void write(raddr_t to, std::span<const std::byte> from);

    struct End {
        void operator()(remote_queue_t* queue) const { remote_queue_close(queue); }
    };
    remote::allocation allocate(std::uint64_t bytes_each) const;

    remote::handle node_;
    std::unique_ptr<remote_queue_t, End> queue_;
    const std::uint32_t number_, count_;
    const int quality_;
    const Album& album_;
    remote::allocation pictures_, jpegs_;
    Codec codec_;
    Picture picture_;
    std::vector<std::byte> jpeg_, again_;
};

} // namespace remora::image
