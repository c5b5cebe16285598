// SPDX-License-Identifier: MIT
// Containers in remote memory: counts the words of standard input in a table of up to 256 MiB, of
// which at most 1 MiB is on this machine at a time. words [TARGET], by default a node inside the
// process.
#include <remote/pmr.hpp>

#include <cstdio>
#include <iostream>
#include <memory_resource>
#include <string>
#include <unordered_map>

int main(int argc, char** argv) {
    constexpr std::size_t table_bytes = 256 << 20;
    remote_mmap_options options{};
    options.size = sizeof(options);
    options.cache_bytes = 1 << 20;

    auto handle = remote::handle::open(argc > 1 ? argv[1] : "embedded:size=320M");
    if (!handle)
        return std::fprintf(stderr, "words: %s\n", remote_why()), 1;
    auto memory = remote::allocation::make(*handle, table_bytes);
    if (!memory)
        return std::fprintf(stderr, "words: %s\n", remote_strerror(memory.error())), 1;
    auto mapped =
        remote::mapping::make(*handle, memory->address(), table_bytes, REMOTE_RW, &options);
    if (!mapped)
        return std::fprintf(stderr, "words: %s\n", remote_why()), 1;

    remote::mapped_resource resource(std::move(*mapped));
    std::pmr::unordered_map<std::pmr::string, unsigned long> counts(&resource);
    for (std::string word; std::cin >> word;)
        ++counts[std::pmr::string(word, &resource)];

    // Strings and nodes of the table are read from the node as the loop comes to them.
    const std::pmr::string* most = nullptr;
    unsigned long times = 0, words = 0;
    for (const auto& [word, count] : counts) {
        words += count;
        if (count > times)
            most = &word, times = count;
    }
    if (most)
        std::printf("%lu words, %zu different; '%s' %lu times\n", words, counts.size(),
                    most->c_str(), times);
    return 0;
}
