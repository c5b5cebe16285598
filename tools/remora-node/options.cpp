// SPDX-License-Identifier: GPL-2.0
#include "remora-node/options.hpp"

#include <algorithm>
#include <bit>
#include <fstream>
#include <limits>

#include <CLI/CLI.hpp>

#include "common/nearest.hpp"
#include "common/version.hpp"
#include "remora-node/store.hpp"
#include "support/failure.hpp"

namespace remora::daemon {

namespace {

constexpr std::uint32_t spin_us_max = 1'000'000;
// A ZERO is one change of a store, for which all others wait (rmem_node_is_slow()).
constexpr std::uint32_t store_page_shift_max = 17;

// Options as the user wrote them; the defaults are those of the kernel's node.
struct Texts {
    std::string memory, page = "64K", pool;
    std::string sessions = "1024", regions = "4096", spaces_max = "256", session_idle = "60";
    std::string ready_fd, stats_interval, spin, memory_file;
    std::vector<std::string> spaces;
    bool no_lock = false;
};

void declare(CLI::App& program, Texts& texts, Options& options) {
    program.set_version_flag("--version", std::string("remora-node ") + version);
    program.set_config("--config", "", "FILE of options, as NAME = VALUE lines");
    program.allow_config_extras(CLI::config_extras_mode::error);
    program.add_option("--memory", texts.memory, "SIZE to lend")->required();
    program.add_option("--page", texts.page, "SIZE of a page, 64K to 4M; default 64K");
    for (const auto& transport : options.transports)
        transport->declare(program);
    program.add_option("--pool", texts.pool, "Zeroed PAGES kept ready; a power of two");
    program.add_option("--sessions", texts.sessions, "At most N sessions; default 1024");
    program.add_option("--regions", texts.regions, "At most N regions; default 4096");
    program.add_option("--spaces", texts.spaces_max, "At most N address spaces; default 256");
    program.add_option("--session-idle", texts.session_idle,
                       "SECONDS after which an unused session can be evicted; default 60");
    program
        .add_option("--space", texts.spaces,
                    "ID=KEYFILE[,quota=SIZE|,read-only-of=ID|,member-of=ID][,require=sealed]; "
                    "repeatable")
        ->allow_extra_args(false);
    program.add_option("--memory-file", texts.memory_file,
                       "ID=FILE[,size=SIZE]: persistent memory of a space, for offloads");
    program.add_option(
        "--store", options.store,
        "FOLDER of a tmpfs, or systemd: memory and sessions outlive the daemon there");
    program.add_option("--spin-us", texts.spin,
                       "Microseconds a thread looks for requests before it sleeps; default 0, "
                       "for rings 50");
    program.add_flag("--no-lock", texts.no_lock, "Don't lock the memory");
    program.add_option("--socket", options.control_socket,
                       "Unix SOCKET for 'remora node --socket'; default /run/remora-node.sock");
    program.add_option("--json-status", options.status_socket,
                       "Unix SOCKET that sends the status to programs that may not control");
    program.add_option("--ready-fd", texts.ready_fd,
                       "Write the port to descriptor N once the node serves");
    program.add_option("--stats-interval", texts.stats_interval,
                       "Print the counters every SECONDS, not at SIGUSR1 only");
}

std::uint32_t number(const std::string& text, std::uint64_t min, std::uint64_t max,
                     std::string_view what) {
    return static_cast<std::uint32_t>(parse_number(text, min, max, what));
}

// An eighth of the memory, within bounds.
std::uint32_t default_pool_pages(std::uint64_t pages) {
    return static_cast<std::uint32_t>(
        std::bit_floor(std::clamp<std::uint64_t>(pages / 8, 2, 4096)));
}

void set_config(const Texts& texts, rmem_node_config& config) {
    static constexpr std::uint64_t page_min = std::uint64_t{1} << RMEM_PAGE_SHIFT_MIN;
    static constexpr std::uint64_t page_max = std::uint64_t{1} << RMEM_PAGE_SHIFT_MAX;
    std::uint64_t page_bytes = parse_size(texts.page);
    std::uint64_t memory_bytes = parse_size(texts.memory);
    if (!std::has_single_bit(page_bytes) || page_bytes < page_min || page_bytes > page_max)
        throw Misuse("--page {} is invalid: write 64K, 128K ... 4M", texts.page);
    config.page_shift = static_cast<std::uint32_t>(std::countr_zero(page_bytes));
    config.pages = memory_bytes >> config.page_shift;
    if (!config.pages)
        throw Misuse("--memory {} is less than a page of {}: raise it", texts.memory, texts.page);
    if (config.pages > RMEM_NODE_PAGES_MAX)
        throw Misuse("--memory {} has too many pages of {}: raise --page", texts.memory,
                     texts.page);
    config.pool_pages = texts.pool.empty() ? default_pool_pages(config.pages)
                                           : number(texts.pool, 2, RMEM_NODE_PAGES_MAX, "--pool");
    if (!std::has_single_bit(config.pool_pages))
        throw Misuse("--pool {} is not a power of two: write one, such as {}", texts.pool,
                     std::bit_floor(config.pool_pages));
    config.piece_bytes = RMEM_PIECE_BYTES_MAX;
    config.spaces_max = number(texts.spaces_max, 1, RMEM_SPACES_MAX, "--spaces");
    config.sessions_max = number(texts.sessions, 1, RMEM_SESSIONS_MAX, "--sessions");
    config.regions_max = number(texts.regions, 1, RMEM_REGIONS_MAX, "--regions");
    config.session_idle_ms = parse_seconds_ms(texts.session_idle);
    config.challenges = true;
}

void set_memory_file(const std::string& text, Options& options) {
    constexpr std::string_view size = ",size=";
    const std::size_t equals = text.find('=');
    const std::size_t end = text.rfind(size);
    if (equals == std::string::npos || equals + 1 == std::min(end, text.size()))
        throw Misuse("'{}' is no memory file: write ID=FILE or ID=FILE,size=SIZE", text);
    options.memory_file_space = parse_space_id(text.substr(0, equals));
    options.memory_file =
        text.substr(equals + 1, end == std::string::npos ? end : end - equals - 1);
    if (end != std::string::npos)
        options.memory_file_bytes = parse_size(text.substr(end + size.size()));
}

void interpret(const Texts& texts, Options& options) {
    set_config(texts, options.config);
    options.store_holds = options.config.page_shift <= store_page_shift_max;
    if (!options.store.empty() && !options.store_holds && options.store != store_of_systemd)
        throw Misuse("--store takes pages up to 128K, not {}: lower --page", texts.page);
    options.lock = !texts.no_lock;
    std::optional<std::uint32_t> spin_us;
    if (!texts.spin.empty())
        spin_us = number(texts.spin, 0, spin_us_max, "--spin-us");
    for (const auto& transport : options.transports)
        transport->interpret(spin_us);
    if (!texts.memory_file.empty())
        set_memory_file(texts.memory_file, options);
    for (const std::string& text : texts.spaces)
        options.spaces.push_back(parse_space(text));
    if (!texts.ready_fd.empty())
        options.ready_fd = static_cast<int>(
            number(texts.ready_fd, 0, std::numeric_limits<int>::max(), "--ready-fd"));
    if (!texts.stats_interval.empty())
        options.stats_interval_ms =
            parse_seconds_ms(texts.stats_interval, 1, UINT32_MAX, "--stats-interval");
}

// The line of an option, or a heading, in the file of --config; 0: it isn't found. CLI11 keeps no
// lines.
unsigned line_of(const std::string& path, const std::string& option) {
    constexpr std::string_view blanks = " \t";
    std::ifstream file(path);
    std::string line;
    for (unsigned number = 1; std::getline(file, line); number++) {
        std::string_view name = std::string_view(line).substr(0, line.find('='));
        name.remove_prefix(std::min(name.find_first_not_of(blanks), name.size()));
        if (name.substr(0, name.find_last_not_of(blanks) + 1) == option)
            return number;
    }
    return 0;
}

// name: as CLI11 has it, with the section before it; the beginning of a section is its option "++".
[[noreturn]] void refuse_option(const CLI::App& program, const std::string& name) {
    const std::string path = program.get_config_ptr()->results().front();
    if (name.ends_with(".++")) {
        const std::string heading = fmt::format("[{}]", name.substr(0, name.size() - 3));
        throw Misuse("{}:{}: {} is not expected: the file has no sections", path,
                     line_of(path, heading), heading);
    }
    const std::string option = name.substr(name.rfind('.') + 1);
    std::vector<std::string> known;
    for (const CLI::Option* each : program.get_options())
        for (const std::string& word : each->get_lnames())
            known.push_back(word);
    const std::string near = nearest(option, known);
    throw Misuse("{}:{}: there is no option '{}'{}", path, line_of(path, option), name,
                 near.empty() ? ": see 'remora-node --help'" : fmt::format(": is it '{}'?", near));
}

} // namespace

std::optional<Options> parse_options(int argc, char** argv, int* code) {
    CLI::App program("Lends this machine's memory, without a kernel module.", "remora-node");
    Texts texts;
    Options options;
    declare(program, texts, options);
    try {
        program.parse(argc, argv);
    } catch (const CLI::ConfigError& error) {
        constexpr std::string_view unknown = "INI was not able to parse ";
        const std::string text = error.what();
        if (text.starts_with(unknown))
            refuse_option(program, text.substr(unknown.size()));
        throw Misuse("the file of --config: {}: see 'remora-node --help'", text);
    } catch (const CLI::ParseError& error) {
        if (error.get_exit_code())
            throw Misuse("{}: see 'remora-node --help'", error.what());
        *code = program.exit(error); // help, version
        return std::nullopt;
    }
    interpret(texts, options);
    return options;
}

} // namespace remora::daemon
