// SPDX-License-Identifier: MIT
/*
 * The memory node's core with its surroundings in user space: pages, locks, zeroing.
 * The daemon puts sockets before it, the library's `embedded` a function call.
 *
 *   READ WRITE DISCARD ZERO ... slot_lock() { rmem_node_request(core()); rmem_execute() }
 *   OPEN CLOSE ALLOC FREE ...   call(): call lock { slow lock, slot lock { a step } ... }
 *   zeroing                     take_dirty() -> a grace period -> clean()
 *
 * With a Store the state and the pages outlive the process, and each change is bracketed by a
 * Change.
 *
 * Requests that found a page before it was given back can still read it: between take_dirty() and
 * clean() the caller waits until they have ended.
 */
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <mutex>
#include <span>
#include <vector>

#include "node/core.hpp"
#include "node/memory.hpp"
#include "node/memory_file.hpp"
#include "node/store.hpp"

namespace remora::node {

class Host {
public:
    // Called between the steps of a long call, which it is given. If that is divisible it may call
    // enter(); if that waits, it lets calls of offloads run on.
    using Between = std::function<void(const rmem_node_call& under_way)>;

    // Throws Failure if the configuration isn't sound or the memory isn't to be had.
    // memory_option: that of the program's user, to be named in failures.
    // file: holds config.persistent_pages; it outlives this.
    // store: holds the state and the pages, or will; it outlives this. Without a file. now_ns: the
    // time, for its sessions.
    Host(const rmem_node_config& config, bool lock_memory, const char* memory_option = "--memory",
         MemoryFile* file = nullptr, Store* store = nullptr, std::uint64_t now_ns = 0);

    // True: the node goes on with the store's content. Else why it doesn't; null: the store is new.
    bool took_over() const { return store_ && !refused_; }
    const char* refused() const { return is_new_ ? nullptr : refused_; }
    // From now on no other process takes the store over.
    void lapse() {
        if (store_)
            rmem_store_lapse(core_->store);
    }
    // A space that was taken over. False: it isn't there. Throws Failure: it has another key or
    // base, a session of another level, or a quota below a page. Else its quota becomes this, and
    // its level and its views', if one is required.
    // One whose key was revoked stays as it is.
    bool keep_space(std::uint32_t id, const std::uint8_t* key, std::uint64_t quota_bytes,
                    std::uint32_t base, bool member, std::uint8_t required);

    // Around the execution of a fast request: rmem_node_request() and rmem_execute(). Slot lock.
    class Change {
    public:
        Change(Host& host, const rmem_head& head, std::span<const std::uint8_t> payload,
               const rmem_peer& peer) {
            if (!host.store_ || !rmem_type_changes(head.type))
                return;
            one_ = std::unique_lock(host.change_lock_);
            redo_ = &host.core_->store->redo;
            rmem_redo_begin(redo_, &head, payload.data(), static_cast<u32>(payload.size()), &peer);
        }
        ~Change() {
            if (redo_)
                rmem_redo_end(redo_);
        }
        Change(const Change&) = delete;
        Change& operator=(const Change&) = delete;

    private:
        std::unique_lock<std::mutex> one_;
        rmem_redo* redo_ = nullptr;
    };

    const rmem_node_config& config() const { return config_; }
    // The caller holds the locks that core/rmem/node/node.h requires.
    rmem_node* core() { return core_; }

    std::mutex& slot_lock(std::uint64_t session) {
        return slot_lock_[rmem_node_slot(core_, session)];
    }
    std::uint32_t slots() const { return config_.sessions_max; }
    std::mutex& lock_of_slot(std::uint32_t slot) { return slot_lock_[slot]; }

    std::uint8_t* page(std::uint32_t index) const {
        return pages_.data() + (std::uint64_t{index} << config_.page_shift);
    }
    // The bytes that a READ finds: the page, or zeros if it was never written.
    std::span<const std::uint8_t> data(const rmem_extent& extent) const;
    // Where the extent's page is.
    std::uint8_t* at(const rmem_extent& extent) const { return page(extent.page) + extent.offset; }
    // For rmem_node_access(): to the extents, or stretch by stretch.
    void copy_in(const rmem_answer& answer, const std::uint8_t* from);
    void copy_inside(rmem_answer& answer);

    // required: the level of its sessions, as rmem_node_space_require() has it.
    rmem_space_error add_space(std::uint32_t id, const std::uint8_t* key, std::uint64_t quota_bytes,
                               std::uint8_t required = 0);
    // Gives the file's memory to a space that has been added. False: the space isn't there.
    bool add_persistent(std::uint32_t id, std::uint64_t address);
    MemoryFile* file() const { return file_; }
    rmem_space_error add_view(std::uint32_t id, const std::uint8_t* key, std::uint32_t base,
                              std::uint8_t required = 0);
    rmem_space_error add_member(std::uint32_t id, const std::uint8_t* key, std::uint32_t base,
                                std::uint8_t required = 0);
    // force: ends the space's sessions and frees its regions first; between is called between the
    // steps of that, as in call(). The sessions of a view or a member are always ended, and
    // ALLOCs that they didn't acknowledge are undone. grace returns once the requests have ended
    // that found the space's key before; then the key is wiped.
    rmem_space_error del_space(std::uint32_t id, bool force, const Between& between,
                               const std::function<void()>& grace);
    // Ends the space's sessions, and its key opens none from then on; its memory stays.
    // between and grace: as of del_space().
    rmem_space_error revoke_space(std::uint32_t id, const Between& between,
                                  const std::function<void()>& grace);
    struct SpaceUsage {
        std::uint32_t id;
        std::uint32_t base; // of which it is a view or member; 0: it has memory of its own
        bool member, revoked;
        std::uint32_t regions;
        std::uint8_t required; // level of its sessions; 0: any
        std::uint64_t promised_bytes, quota_bytes;
        std::uint64_t calls_ns; // of its clients
        rmem_traffic traffic;   // the same
    };
    std::vector<SpaceUsage> spaces();
    // Calls fn under the locks that changes of the spaces are made under.
    template <typename Fn>
    void with_spaces(Fn fn) {
        std::lock_guard one_call(call_lock_);
        std::lock_guard slow(slow_lock_);
        fn();
    }
    // Regions of a space, or of a view's base, in the order of their addresses: at most max, from
    // the first one at from or behind. Throws Failure: there is no such space.
    std::vector<rmem_listed> regions(std::uint32_t id, std::uint64_t from, std::size_t max);
    struct rmem_node_usage usage();

    // Runs all steps of a request for which rmem_node_is_slow() holds.
    void call(rmem_node_call& call, std::uint64_t now_ns, const rmem_head& head,
              const rmem_peer& peer, const void* payload);

    // The same, as core/rmem/node/queue.h has it. now() tells the time when the call begins. False:
    // the job's space is gone.
    template <typename Now>
    bool call(rmem_job& job, const rmem_peer& peer, Now now, const Between& between) {
        std::lock_guard one_call(call_lock_);
        if (!rmem_job_is_current(&job, core_))
            return false;
        rmem_node_call_begin(core_, &job.call, now(), &job.head, &peer, &job.payload);
        run(job.call, between);
        return true;
    }
    // Within Between, a brief one.
    enum class Entered { executed, must_wait, space_gone };
    Entered enter(rmem_job& job, const rmem_peer& peer, std::uint64_t now_ns,
                  const rmem_node_call& under_way);

    // Ends idle sessions that owe memory, as rmem_node_call_expire().
    void expire(std::uint64_t now_ns, const Between& between);

    // From now on requests are told that the node has restarted (rmem_node_reboot()).
    void retire(std::uint64_t boot) { rmem_node_reboot(core_, boot); }

    // Takes the next pages to zero; pages never used are zero and go back at once. False: none.
    // One thread at a time is between this and clean().
    bool take_dirty();
    bool has_dirty() const { return !dirty_.empty(); }
    // Zeroes at most 1 MiB of them. Returns the number of pages that it has given back.
    std::size_t clean();

private:
    const char* open_store(const char* memory_option, std::uint64_t now_ns);
    void recover(std::uint64_t now_ns);
    template <typename Add>
    rmem_space_error add(std::uint32_t id, std::uint8_t required, Add add);
    bool step(rmem_node_call& call);
    void run(rmem_node_call& call, const Between& between);

    rmem_node_config config_;
    MemoryFile* file_;
    Store* store_;
    bool is_new_;
    Memory state_;
    const char* refused_; // why the store wasn't taken over
    Memory pages_;
    std::unique_ptr<rmem_node> own_; // without a store
    rmem_node* core_;
    std::mutex call_lock_; // one call at a time; before all others
    std::mutex slow_lock_;
    std::mutex change_lock_; // the store's redo; within a slot lock
    std::unique_ptr<std::mutex[]> slot_lock_;
    std::vector<std::uint32_t> dirty_;
    std::size_t zeroed_ = 0; // bytes of the last dirty page
};

} // namespace remora::node
