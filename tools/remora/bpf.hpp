// SPDX-License-Identifier: GPL-2.0
// Programs in BPF beside the memory, which remora-bpf loads.
#pragma once

#include <string>
#include <string_view>

namespace remora {

// FILE of a program in BPF, rather than the name of one.
bool bpf_is_file(std::string_view program);

// verb: load or replace FILE, forget NAME. Returns the name, of a file.
std::string bpf_run(const std::string& verb, const std::string& which);

// The kernel forgets the program. False: it has none in BPF of that name.
bool bpf_forget(const std::string& name);

} // namespace remora
