// SPDX-License-Identifier: GPL-2.0
/*
 * The memory map and the access policy of a fabric, as its operator writes them. A file of JSON, in
 * which comments are permitted:
 *
 *   {
 *     "machines": [                           // in the order of their ports, 2 to 15
 *       {"name": "left", "ram": "256M"},
 *       {"name": "right", "ram": "256M"}
 *     ],
 *     "window": "1M",                         // of each window, at most; default 4M
 *     "access": [                             // the last rule that matches decides;
 *       {"from": "*", "to": "*", "may": "write"},   // without one: nothing
 *       {"from": "right", "to": "left", "may": "read"},
 *       {"from": "left", "to": "right", "may": "write", "pages": ["64M-128M"]}
 *     ]
 *   }
 *
 * RAM is a power of two from 64M to 2G. A window is a power of two, too, and all windows of a
 * machine together take an eighth of its RAM at most. Two machines have a link if each may write to
 * the other. "pages" are those of the other's RAM that the machine's programs may copy to and from,
 * NTB_RANGES ranges at most; without it, all. They can be changed while the machines run.
 */
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include <nlohmann/json_fwd.hpp>

namespace remora::mh {

// A machine's right to another one's RAM.
enum class Access { nothing, read, write };

std::string_view access_text(Access access);
// Throws Failure: it is none. where: names it in the error.
Access access_parse(std::string_view text, std::string_view where);

// Bytes of a machine's RAM, whole pages.
struct Range {
    std::uint64_t begin, end;
};

struct Machine {
    std::string name;
    std::uint64_t ram_bytes;
    // The windows that its peers have into its RAM stand one after the other.
    std::uint64_t windows_base, window_bytes;
};

class Map {
public:
    static constexpr std::size_t file_bytes_max = 64 << 10;

    // Both throw Failure: one line that says which part is wrong, and why.
    static Map read(const std::string& path);
    explicit Map(const nlohmann::ordered_json& json);

    const std::vector<Machine>& machines() const { return machines_; }
    std::size_t ports() const { return machines_.size(); }
    // Throws Failure: no machine has that name.
    std::size_t port_of(std::string_view name) const;
    Access access(std::size_t from, std::size_t to) const { return access_[from][to]; }
    // Pages of `to` that `from` may copy to and from.
    const std::vector<Range>& pages(std::size_t from, std::size_t to) const {
        return pages_[from][to];
    }
    // ranges: a list of texts. Throws Failure, and nothing has changed.
    void set_pages(std::size_t from, std::size_t to, const nlohmann::ordered_json& ranges,
                   const std::string& where);
    // The texts again.
    nlohmann::ordered_json pages_json(std::size_t from, std::size_t to) const;
    bool linked(std::size_t one, std::size_t other) const;
    // The parameter by which a machine's kernel leaves the windows' memory alone.
    std::string kernel_parameter(std::size_t port) const;
    // The same map again.
    nlohmann::ordered_json json() const;

private:
    void add_machine(const nlohmann::ordered_json& json, const std::string& where);
    void set_windows(std::uint64_t bytes_max);
    void apply_rule(const nlohmann::ordered_json& json, const std::string& where);
    std::vector<std::size_t> ports_named(const nlohmann::ordered_json& json, const char* member,
                                         const std::string& where) const;

    std::vector<Machine> machines_;
    std::vector<std::vector<Access>> access_;            // [from][to]
    std::vector<std::vector<std::vector<Range>>> pages_; // [from][to]
    std::uint64_t window_bytes_max_ = 0;
};

} // namespace remora::mh
