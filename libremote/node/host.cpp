// SPDX-License-Identifier: MIT
#include "node/host.hpp"

#include <algorithm>
#include <array>
#include <atomic>
#include <cstring>
#include <string_view>

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

// ---- a store ----

std::size_t pages_bytes(const rmem_node_config& config) {
    return (config.pages - config.persistent_pages) << config.page_shift;
}

// Where the pages begin, a place for large ones.
std::uint64_t state_offset(const rmem_node_config& config) {
    constexpr std::uint64_t align = std::uint64_t{2} << 20;
    return (rmem_store_bytes(&config) + align - 1) / align * align;
}

rmem_store* kept_in(const Memory& state) {
    return reinterpret_cast<rmem_store*>(state.data());
}

// An operator's slip must not cost the memory.
[[noreturn]] void refuse_store(std::string_view why) {
    throw Failure("the store can't be taken over: {}; to lose its memory and begin anew, remove "
                  "the file remora-node.store, or stop the service and start it",
                  why);
}

Memory store_state(Store& store, const rmem_node_config& config, bool lock, const char* option) {
    const std::uint64_t bytes = state_offset(config) + pages_bytes(config);
    const std::uint64_t has_bytes = store.bytes();
    if (has_bytes && has_bytes != bytes)
        refuse_store("it was made with other sizes: --memory, --page, --pool, --spaces, "
                     "--sessions or --regions");
    if (!has_bytes) {
        check_available(bytes, option);
        store.renew(bytes, option);
    }
    return {store, 0, state_offset(config), lock, option};
}

// The level of a kept space, which holds for its views, too: they show the same memory. Throws
// Failure: a session has another one.
void keep_level(rmem_node& core, rmem_space& kept, std::uint8_t required) {
    const std::span spaces(core.spaces.slot, core.spaces.slots);
    const auto index = static_cast<std::uint32_t>(&kept - core.spaces.slot);
    if (!required && kept.base)
        required = spaces[kept.base - 1].required;
    if (!required)
        return;
    for (const rmem_session& session : std::span(core.sessions.slot, core.sessions.slots)) {
        const rmem_place& place = session.place;
        if (session.name != RMEM_SESSION_NONE && rmem_spaces_has(&core.spaces, &place) &&
            (place.index == index || place.memory == index) && session.integrity != required)
            throw Failure("space {} has sessions in the store that aren't sealed: start without "
                          "require=sealed until their clients have ended, or remove the store",
                          place.space);
    }
    for (rmem_space& space : spaces) {
        if (space.id && (&space == &kept || space.base == index + 1))
            space.required = required;
    }
}

} // namespace

Host::Host(const rmem_node_config& config, bool lock_memory, const char* memory_option,
           MemoryFile* file, Store* store, std::uint64_t now_ns)
    : config_(checked(config)),
      file_(file),
      store_(store),
      is_new_(store && !store->bytes()),
      state_(store ? store_state(*store, config_, lock_memory, memory_option)
                   : Memory(rmem_node_state_bytes(&config), lock_memory, memory_option)),
      refused_(store ? open_store(memory_option, now_ns) : nullptr),
      pages_(store ? Memory(*store, state_offset(config_), pages_bytes(config_), lock_memory,
                            memory_option)
                   : Memory(pages_bytes(config_), lock_memory, memory_option, file)),
      own_(store ? nullptr : new rmem_node),
      core_(store ? &kept_in(state_)->node : own_.get()),
      slot_lock_(new std::mutex[config.sessions_max]) {
    crc32c_setup_once();
    if (!store)
        rmem_node_init(core_, &config_, state_.data());
    dirty_.reserve(dirty_pages(config_));
    // Memory fresh from the kernel is zero: the pool fills at once.
    while (take_dirty()) {
        while (has_dirty())
            clean();
    }
    if (took_over())
        recover(now_ns);
}

// Takes the store over, or begins it anew: then the result says why.
const char* Host::open_store(const char* memory_option, std::uint64_t now_ns) {
    rmem_store* kept = kept_in(state_);
    const char* why = rmem_store_take(kept, &config_, now_ns);
    if (!why) {
        config_.boot = kept->node.config.boot;
        std::copy_n(kept->node.config.seed, std::size(config_.seed), config_.seed);
        return nullptr;
    }
    if (kept->magic && !kept->lapsed)
        refuse_store(why);
    if (kept->magic)
        store_->renew(state_offset(config_) + pages_bytes(config_), memory_option);
    rmem_store_init(kept, &config_);
    return why;
}

// The change that was under way when the process before ended.
void Host::recover(std::uint64_t now_ns) {
    static constexpr rmem_execute_ops ops{
        [](void* host, const rmem_extent* extent) -> void* {
            return static_cast<Host*>(host)->at(*extent);
        },
        [](void* host, u32 offset, void* to, u32 bytes) {
            std::memcpy(to, static_cast<Host*>(host)->core_->store->redo.payload + offset, bytes);
        },
        [](void*, rmem_answer*, rmem_execute_data*) { return true; }, nullptr};
    rmem_store_redo(core_->store, &ops, this, now_ns);
}

// A process that is killed here leaves no space without the level that it is to have. No session
// begins before it has: that wants the locks that the caller holds.
template <typename Add>
rmem_space_error Host::add(std::uint32_t id, std::uint8_t required, Add add) {
    if (required == RMEM_SEALED && !rmem_node_seals(core_))
        return RMEM_SPACE_NO_CIPHER;
    if (store_ && rmem_node_incarnation(core_, id))
        return RMEM_SPACE_EXISTS;
    if (store_)
        rmem_work_begin(core_, RMEM_WORK_SPACE, nullptr, 0, id);
    const rmem_space_error added = add();
    if (added == RMEM_SPACE_OK && required)
        rmem_node_space_require(core_, id, required);
    if (store_)
        rmem_work_end(core_);
    return added;
}

rmem_space_error Host::add_space(std::uint32_t id, const std::uint8_t* key,
                                 std::uint64_t quota_bytes, std::uint8_t required) {
    std::lock_guard one_call(call_lock_);
    std::lock_guard slow(slow_lock_);
    return add(id, required, [&] { return rmem_node_space_add(core_, id, key, quota_bytes); });
}

bool Host::keep_space(std::uint32_t id, const std::uint8_t* key, std::uint64_t quota_bytes,
                      std::uint32_t base, bool member, std::uint8_t required) {
    std::lock_guard one_call(call_lock_);
    std::lock_guard slow(slow_lock_);
    rmem_space* space = rmem_spaces_find(&core_->spaces, id);
    if (!space)
        return false;
    if (rmem_space_is_revoked(space))
        return true; // the key of the options opens nothing, as before
    base_siphash_key its;
    base_siphash_key_load(&its, key);
    if (its.k[0] != space->key.k[0] || its.k[1] != space->key.k[1] ||
        rmem_spaces_base(&core_->spaces, space) != base || space->member != member)
        throw Failure("space {} has another key, or is read-only or a member of another one, in "
                      "the store: give what it had, or remove the store",
                      id);
    if (quota_bytes && !(quota_bytes >> config_.page_shift))
        throw Failure("space {} has a quota below one page: raise it", id);
    keep_level(*core_, *space, required);
    space->quota_pages = quota_bytes >> config_.page_shift;
    return true;
}

bool Host::add_persistent(std::uint32_t id, std::uint64_t address) {
    std::lock_guard one_call(call_lock_);
    std::lock_guard slow(slow_lock_);
    return rmem_node_add_persistent(core_, id, address);
}

rmem_space_error Host::add_view(std::uint32_t id, const std::uint8_t* key, std::uint32_t base,
                                std::uint8_t required) {
    std::lock_guard one_call(call_lock_);
    std::lock_guard slow(slow_lock_);
    return add(id, required, [&] { return rmem_node_space_add_view(core_, id, key, base); });
}

rmem_space_error Host::add_member(std::uint32_t id, const std::uint8_t* key, std::uint32_t base,
                                  std::uint8_t required) {
    std::lock_guard one_call(call_lock_);
    std::lock_guard slow(slow_lock_);
    return add(id, required, [&] { return rmem_node_space_add_member(core_, id, key, base); });
}

rmem_space_error Host::del_space(std::uint32_t id, bool force, const Between& between,
                                 const std::function<void()>& grace) {
    std::lock_guard one_call(call_lock_);
    rmem_node_call call;
    if ((force || rmem_node_space_is_view(core_, id)) && rmem_node_call_clear(core_, &call, id))
        run(call, between);
    rmem_space_error error;
    {
        std::lock_guard slow(slow_lock_);
        error = rmem_node_space_del(core_, id);
    }
    // The next space can take its place only after that.
    if (error == RMEM_SPACE_OK) {
        grace();
        rmem_node_space_wipe(core_);
        if (store_) {
            std::lock_guard one_change(change_lock_);
            rmem_redo& redo = core_->store->redo; // of the last change, maybe the space's
            rmem_seal_wipe(redo.payload, sizeof(redo.payload));
        }
    }
    return error;
}

rmem_space_error Host::revoke_space(std::uint32_t id, const Between& between,
                                    const std::function<void()>& grace) {
    std::lock_guard one_call(call_lock_);
    rmem_node_call call;
    if (rmem_node_call_revoke(core_, &call, id))
        run(call, between);
    rmem_space_error error;
    {
        std::lock_guard slow(slow_lock_);
        error = rmem_node_space_revoke(core_, id);
    }
    if (error == RMEM_SPACE_OK) {
        grace();
        rmem_node_space_wipe(core_);
    }
    return error;
}

std::vector<Host::SpaceUsage> Host::spaces() {
    std::vector<SpaceUsage> all;
    std::lock_guard slow(slow_lock_);
    rmem_traffic_settle_all(core_);
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
        if (rmem_node_list(core_, *region, &one))
            listed.push_back(one);
    }
    return listed;
}

struct rmem_node_usage Host::usage() {
    struct rmem_node_usage usage;
    std::lock_guard slow(slow_lock_);
    rmem_node_usage(core_, &usage);
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
    rmem_node_call_begin(core_, &call, now_ns, &head, &peer, payload);
    while (step(call)) {
    }
}

Host::Entered Host::enter(rmem_job& job, const rmem_peer& peer, std::uint64_t now_ns,
                          const rmem_node_call& under_way) {
    if (!rmem_job_is_current(&job, core_))
        return Entered::space_gone;
    if (!rmem_node_call_enter(core_, &under_way, &job.call, now_ns, &job.head, &peer, &job.payload))
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
        return rmem_node_call_step(core_, &call);
    std::lock_guard slow(slow_lock_);
    std::unique_lock<std::mutex> slot;
    if (call.slot >= 0)
        slot = std::unique_lock(slot_lock_[call.slot]);
    bool more = rmem_node_call_step(core_, &call);
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
        std::uint32_t page = rmem_node_scrub_next(core_, &used);
        if (page == RMEM_PAGE_NONE)
            break;
        any = true;
        if (used)
            dirty_.push_back(page);
        else
            rmem_node_scrub_done(core_, page);
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
        rmem_node_scrub_done(core_, dirty_.back());
        dirty_.pop_back();
        zeroed_ = 0;
        cleaned++;
    }
    return cleaned;
}

} // namespace remora::node
