// SPDX-License-Identifier: MIT
#include "node/host.hpp"

#include <algorithm>
#include <array>
#include <atomic>
#include <cstring>

#include "support/crc32c.hpp"
#include "support/failure.hpp"

namespace remora::node {

namespace {

// Bytes zeroed in one turn, for which requests wait.
constexpr std::size_t clean_bytes = std::size_t{1} << 20;

// Answers a READ of memory never written.
alignas(64) constexpr std::array<std::uint8_t, RMEM_PIECE_BYTES_MAX> zeros{};

// Pages taken from the core at once to be zeroed. A grace period for half the pool: pages written
// anew are ready in time.
std::size_t dirty_pages(const rmem_node_config& config) {
    return std::max(config.pool_pages / 2, 1u);
}

const rmem_node_config& checked(const rmem_node_config& config) {
    if (const char* error = rmem_node_config_error(&config))
        throw Failure("invalid node: {}", error);
    return config;
}

} // namespace

Host::Host(const rmem_node_config& config, bool lock_memory, const char* memory_option,
           MemoryFile* file)
    : config_(checked(config)),
      file_(file),
      pages_((config.pages - config.persistent_pages) << config.page_shift, lock_memory,
             memory_option, file),
      state_(rmem_node_state_bytes(&config), lock_memory, memory_option),
      core_(new rmem_node),
      slot_lock_(new std::mutex[config.sessions_max]) {
    crc32c_setup_once();
    rmem_node_init(core_.get(), &config_, state_.data());
    dirty_.reserve(dirty_pages(config_));
    // Memory fresh from the kernel is zero: the pool fills at once.
    while (take_dirty()) {
    }
}

rmem_space_error Host::add_space(std::uint32_t id, const std::uint8_t* key,
                                 std::uint64_t quota_bytes, std::uint8_t required) {
    std::lock_guard one_call(call_lock_);
    std::lock_guard slow(slow_lock_);
    return require(id, required,
                   [&] { return rmem_node_space_add(core_.get(), id, key, quota_bytes); });
}

// No session begins before: that wants the locks that the caller holds.
rmem_space_error Host::require(std::uint32_t id, std::uint8_t required,
                               const std::function<rmem_space_error()>& add) {
    if (required == RMEM_SEALED && !rmem_node_seals(core_.get()))
        return RMEM_SPACE_NO_CIPHER;
    const rmem_space_error added = add();
    if (added == RMEM_SPACE_OK && required)
        rmem_node_space_require(core_.get(), id, required);
    return added;
}

bool Host::add_persistent(std::uint32_t id, std::uint64_t address) {
    std::lock_guard one_call(call_lock_);
    std::lock_guard slow(slow_lock_);
    return rmem_node_add_persistent(core_.get(), id, address);
}

rmem_space_error Host::add_view(std::uint32_t id, const std::uint8_t* key, std::uint32_t base,
                                std::uint8_t required) {
    std::lock_guard one_call(call_lock_);
    std::lock_guard slow(slow_lock_);
    return require(id, required,
                   [&] { return rmem_node_space_add_view(core_.get(), id, key, base); });
}

rmem_space_error Host::add_member(std::uint32_t id, const std::uint8_t* key, std::uint32_t base,
                                  std::uint8_t required) {
    std::lock_guard one_call(call_lock_);
    std::lock_guard slow(slow_lock_);
    return require(id, required,
                   [&] { return rmem_node_space_add_member(core_.get(), id, key, base); });
}

rmem_space_error Host::del_space(std::uint32_t id, bool force, const Between& between,
                                 const std::function<void()>& grace) {
    std::lock_guard one_call(call_lock_);
    rmem_node_call call;
    if (force && rmem_node_call_clear(core_.get(), &call, id))
        run(call, between);
    rmem_space_error error;
    {
        std::lock_guard slow(slow_lock_);
        error = rmem_node_space_del(core_.get(), id);
    }
    // The next space can take its place only after that.
    if (error == RMEM_SPACE_OK) {
        grace();
        rmem_node_space_wipe(core_.get());
    }
    return error;
}

rmem_space_error Host::revoke_space(std::uint32_t id, const Between& between,
                                    const std::function<void()>& grace) {
    std::lock_guard one_call(call_lock_);
    rmem_node_call call;
    if (rmem_node_call_revoke(core_.get(), &call, id))
        run(call, between);
    rmem_space_error error;
    {
        std::lock_guard slow(slow_lock_);
        error = rmem_node_space_revoke(core_.get(), id);
    }
    if (error == RMEM_SPACE_OK) {
        grace();
        rmem_node_space_wipe(core_.get());
    }
    return error;
}

std::vector<Host::SpaceUsage> Host::spaces() {
    std::vector<SpaceUsage> all;
    std::lock_guard slow(slow_lock_);
    rmem_traffic_settle_all(core_.get());
    const rmem_spaces& spaces = core_->spaces;
    for (const rmem_space& space : std::span(spaces.slot, spaces.slots)) {
        if (space.id)
            all.push_back({space.id, rmem_spaces_base(&spaces, &space), space.member,
                           rmem_space_is_revoked(&space), space.regions, space.required,
                           space.pages_promised << config_.page_shift,
                           space.quota_pages << config_.page_shift,
                           __atomic_load_n(&space.calls_ns, __ATOMIC_RELAXED), space.traffic});
    }
    return all;
}

std::vector<rmem_listed> Host::regions(std::uint32_t id, std::uint64_t from, std::size_t max) {
    std::lock_guard slow(slow_lock_);
    const rmem_space* space = rmem_spaces_find(&core_->spaces, id);
    if (!space)
        throw Failure("no space {}: 'remora node space list' has them", id);
    rmem_place place;
    rmem_spaces_place(&core_->spaces, space, &place);
    std::vector<const rmem_region*> found;
    for (std::uint32_t slot = 0; slot < core_->alloc.regions_max; slot++) {
        const rmem_region* region = rmem_alloc_at(&core_->alloc, slot);
        if (region && region->space_index == place.memory &&
            region->vpn << config_.page_shift >= from)
            found.push_back(region);
    }
    const auto end = found.begin() + std::ptrdiff_t(std::min(found.size(), max));
    std::ranges::partial_sort(found, end, {}, &rmem_region::vpn);
    std::vector<rmem_listed> listed;
    for (auto region = found.begin(); region != end; ++region) {
        rmem_listed one;
        if (rmem_node_list(core_.get(), *region, &one))
            listed.push_back(one);
    }
    return listed;
}

struct rmem_node_usage Host::usage() {
    struct rmem_node_usage usage;
    std::lock_guard slow(slow_lock_);
    rmem_node_usage(core_.get(), &usage);
    return usage;
}

// ---- data ----

std::span<const std::uint8_t> Host::data(const rmem_extent& extent) const {
    if (extent.page == RMEM_PAGE_NONE)
        return std::span(zeros).first(extent.bytes);
    return {at(extent), extent.bytes};
}

void Host::copy_in(const rmem_answer& answer, const std::uint8_t* from) {
    for (const rmem_extent& extent : std::span(answer.extent, answer.extents)) {
        std::memcpy(at(extent), from, extent.bytes);
        from += extent.bytes;
    }
}

void Host::copy_inside(rmem_answer& answer) {
    rmem_extent to, from;
    while (rmem_node_stretch(&answer, &to, &from)) {
        if (from.page == RMEM_PAGE_NONE)
            std::memset(at(to), 0, to.bytes);
        else
            std::memcpy(at(to), at(from), to.bytes);
    }
}

// ---- calls ----

// Takes the slow lock anew for each step, so that other calls run between the steps of a long one.
void Host::call(rmem_node_call& call, std::uint64_t now_ns, const rmem_head& head,
                const rmem_peer& peer, const void* payload) {
    std::lock_guard one_call(call_lock_);
    rmem_node_call_begin(core_.get(), &call, now_ns, &head, &peer, payload);
    while (step(call)) {
    }
}

Host::Entered Host::enter(rmem_job& job, const rmem_peer& peer, std::uint64_t now_ns,
                          const rmem_node_call& under_way) {
    if (!rmem_job_is_current(&job, core_.get()))
        return Entered::space_gone;
    if (!rmem_node_call_enter(core_.get(), &under_way, &job.call, now_ns, &job.head, &peer,
                              &job.payload))
        return Entered::must_wait;
    while (step(job.call)) {
    }
    return job.call.put_off ? Entered::must_wait : Entered::executed;
}

void Host::expire(std::uint64_t now_ns, const Between& between) {
    std::lock_guard one_call(call_lock_);
    rmem_node_call call;
    rmem_node_call_expire(&call, now_ns);
    run(call, between);
}

void Host::run(rmem_node_call& call, const Between& between) {
    while (step(call)) {
        if (call.divisible || call.waits)
            between(call);
    }
}

bool Host::step(rmem_node_call& call) {
    if (call.alone)
        return rmem_node_call_step(core_.get(), &call);
    std::lock_guard slow(slow_lock_);
    std::unique_lock<std::mutex> slot;
    if (call.slot >= 0)
        slot = std::unique_lock(slot_lock_[call.slot]);
    bool more = rmem_node_call_step(core_.get(), &call);
    if (call.fill.bytes)
        std::memset(at(call.fill), 0, call.fill.bytes);
    return more;
}

// ---- zeroing ----

bool Host::take_dirty() {
    std::lock_guard slow(slow_lock_);
    bool any = false;
    while (dirty_.size() < dirty_pages(config_)) {
        bool used;
        std::uint32_t page = rmem_node_scrub_next(core_.get(), &used);
        if (page == RMEM_PAGE_NONE)
            break;
        any = true;
        if (used)
            dirty_.push_back(page);
        else
            rmem_node_scrub_done(core_.get(), page);
    }
    return any;
}

std::size_t Host::clean() {
    std::size_t page_bytes = std::size_t{1} << config_.page_shift;
    std::size_t cleaned = 0;
    for (std::size_t left = clean_bytes; left && has_dirty();) {
        std::size_t now = std::min(left, page_bytes - zeroed_);
        std::memset(page(dirty_.back()) + zeroed_, 0, now);
        zeroed_ += now;
        left -= now;
        if (zeroed_ < page_bytes)
            break;
        std::lock_guard slow(slow_lock_);
        rmem_node_scrub_done(core_.get(), dirty_.back());
        dirty_.pop_back();
        zeroed_ = 0;
        cleaned++;
    }
    return cleaned;
}

} // namespace remora::node
