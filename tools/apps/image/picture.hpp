// SPDX-License-Identifier: GPL-2.0
// Pictures of 256x256, RGB, and their JPEGs.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>
#include <vector>

namespace remora::image {

inline constexpr int side = 256;
inline constexpr std::size_t picture_bytes = std::size_t{side} * side * 3;
// Least peak signal-to-noise ratio of a picture that was compressed and decompressed.
inline constexpr double psnr_min_db = 30;

using Picture = std::vector<std::byte>; // picture_bytes

// The picture of this number of a user: one of some motifs, with both numbers in its first pixels.
class Album {
public:
    Album();
    void copy(std::uint32_t user, std::uint32_t number, Picture& to) const;
    // The ratio of a picture that should be like it, of picture_bytes; infinite: it is the same.
    double psnr_db(std::uint32_t user, std::uint32_t number, const Picture& picture) const;

private:
    std::vector<Picture> motifs_;
};

// For one thread. Throws Failure.
class Codec {
public:
    static std::size_t jpeg_bytes_max();
    Codec();
    // The JPEG is valid until the next call.
    std::span<const std::byte> compress(const Picture& picture, int quality);
    void decompress(std::span<const std::byte> jpeg, Picture& to);

private:
    struct End {
        void operator()(void* handle) const;
    };
    using Handle = std::unique_ptr<void, End>;
    Handle compressor_, decompressor_;
    std::vector<std::byte> jpeg_;
};

} // namespace remora::image
