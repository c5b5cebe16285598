// SPDX-License-Identifier: MIT
// Key files: one line of 32 hex digits, readable by their owner alone.
#pragma once

#include <array>
#include <cstdint>
#include <string>
#include <string_view>

namespace remora {

using Key = std::array<std::uint8_t, 16>;

Key key_random();
std::string key_text(const Key& key); // 32 hex digits

// 32 hex digits, with white space around; source names the text in the error. Throws Failure.
Key key_parse(std::string_view text, const std::string& source);

struct KeyFile {
    Key key;
    bool exposed; // its mode lets others than the owner read it
};
KeyFile key_read(const std::string& file);

// Prints the warning about an exposed file, under the program's name.
Key key_read_warning(const std::string& file, std::string_view program);

// A new file of mode 0600; one that exists stays as it is, and is a Failure.
void key_write(const Key& key, const std::string& file);

} // namespace remora
