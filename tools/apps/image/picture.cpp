// SPDX-License-Identifier: GPL-2.0
#include "apps/image/picture.hpp"

#include <algorithm>
#include <array>
#include <bit>
#include <cmath>
#include <limits>
#include <numbers>

#include <turbojpeg.h>

#include "support/failure.hpp"

namespace remora::image {

namespace {

constexpr unsigned motifs = 16;

// Waves, discs with edges, and some noise, as photos have them.
Picture motif(unsigned number) {
    Picture made(picture_bytes);
    std::uint32_t noise = number * 2654435761U + 1;
    auto* at = made.data();
    for (int y = 0; y < side; y++) {
        for (int x = 0; x < side; x++) {
            const double wave =
                std::sin((x * (number % 5 + 1.0) + y * (number % 3)) / side * 2 * std::numbers::pi);
            const double from_middle = std::hypot(x - 128.0, y - 40.0 - number * 10.0);
            const double disc = from_middle < 30 + number ? 60 : 0;
            noise = noise * 1664525 + 1013904223;
            for (int color = 0; color < 3; color++)
                *at++ = static_cast<std::byte>(
                    static_cast<int>(100 + wave * 40 + disc + color * 10 + (noise >> 30)));
        }
    }
    return made;
}

using Numbers = std::array<std::byte, 2 * sizeof(std::uint32_t)>;

Numbers numbers_of(std::uint32_t user, std::uint32_t number) {
    return std::bit_cast<Numbers>(std::array{user, number});
}

// The sum of the squares of all differences.
std::uint64_t sum_of_squares(std::span<const std::byte> a, std::span<const std::byte> b) {
    std::uint64_t sum = 0;
    for (std::size_t n = 0; n < a.size(); n++) {
        const int difference = std::to_integer<int>(a[n]) - std::to_integer<int>(b[n]);
        sum += static_cast<std::uint64_t>(difference * difference);
    }
    return sum;
}

} // namespace

Album::Album() {
    for (unsigned n = 0; n < motifs; n++)
        motifs_.push_back(motif(n));
}

void Album::copy(std::uint32_t user, std::uint32_t number, Picture& to) const {
    const Numbers numbers = numbers_of(user, number);
    to = motifs_[(user + number) % motifs];
    std::ranges::copy(numbers, to.begin());
}

double Album::psnr_db(std::uint32_t user, std::uint32_t number, const Picture& picture) const {
    const std::span<const std::byte> motif = motifs_[(user + number) % motifs], all = picture;
    const std::uint64_t squares =
        sum_of_squares(numbers_of(user, number), all.first(sizeof(Numbers))) +
        sum_of_squares(motif.subspan(sizeof(Numbers)), all.subspan(sizeof(Numbers)));
    if (!squares)
        return std::numeric_limits<double>::infinity();
    return 10 * std::log10(255.0 * 255 * picture_bytes / static_cast<double>(squares));
}

void Codec::End::operator()(void* handle) const {
    tjDestroy(handle);
}

std::size_t Codec::jpeg_bytes_max() {
    return tjBufSize(side, side, TJSAMP_420);
}

Codec::Codec()
    : compressor_(tjInitCompress()), decompressor_(tjInitDecompress()), jpeg_(jpeg_bytes_max()) {
    if (!compressor_ || !decompressor_)
        throw Failure("no JPEG codec: {}", tjGetErrorStr());
}

std::span<const std::byte> Codec::compress(const Picture& picture, int quality) {
    auto* to = reinterpret_cast<unsigned char*>(jpeg_.data());
    unsigned long bytes = jpeg_.size();
    if (tjCompress2(compressor_.get(), reinterpret_cast<const unsigned char*>(picture.data()), side,
                    0, side, TJPF_RGB, &to, &bytes, TJSAMP_420, quality, TJFLAG_NOREALLOC))
        throw Failure("can't compress a picture: {}", tjGetErrorStr2(compressor_.get()));
    return std::span(jpeg_).first(bytes);
}

void Codec::decompress(std::span<const std::byte> jpeg, Picture& to) {
    to.resize(picture_bytes);
    if (tjDecompress2(decompressor_.get(), reinterpret_cast<const unsigned char*>(jpeg.data()),
                      jpeg.size(), reinterpret_cast<unsigned char*>(to.data()), side, 0, side,
                      TJPF_RGB, 0))
        throw Failure("can't decompress a picture: {}", tjGetErrorStr2(decompressor_.get()));
}

} // namespace remora::image
