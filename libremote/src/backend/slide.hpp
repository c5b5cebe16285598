// SPDX-License-Identifier: MIT
// A long call as pieces, of which some are in flight at once.
#pragma once

#include <algorithm>
#include <array>
#include <optional>

#include "src/backend/backend.hpp"

namespace remora::lib {

// Executes a call of bytes by ops of piece_bytes: when the first of those in flight ends, another
// begins. After a failure none begins. make(op, call, offset, bytes) makes one.
template <std::size_t in_flight, typename Make>
int slide(Backend& backend, std::uint64_t bytes, std::uint32_t piece_bytes, Clock::time_point limit,
          Make make) {
    struct Piece {
        Call call;
        Op op;
    };
    std::array<std::optional<Piece>, in_flight> pieces;
    std::size_t begun = 0, ended = 0;
    std::uint64_t offset = 0;
    int result = 0;
    while (ended < begun || (offset < bytes && !result)) {
        if (begun - ended < in_flight && offset < bytes && !result) {
            Piece& piece = pieces[begun++ % in_flight].emplace();
            std::uint64_t now = std::min<std::uint64_t>(bytes - offset, piece_bytes);
            make(piece.op, piece.call, offset, now);
            piece.call.begin(1, limit);
            backend.start({&piece.op, 1});
            offset += now;
            continue;
        }
        Call& first = pieces[ended++ % in_flight]->call;
        backend.wait(first, never);
        if (!result)
            result = first.result;
    }
    return result;
}

} // namespace remora::lib
