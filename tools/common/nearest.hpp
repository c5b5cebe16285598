// SPDX-License-Identifier: GPL-2.0
// Guesses the word that a user misspelt.
#pragma once

#include <string>
#include <vector>

namespace remora {

// The known word that takes the fewest changes of letters; empty if none is near, or none known.
std::string nearest(const std::string& word, const std::vector<std::string>& known);

} // namespace remora
