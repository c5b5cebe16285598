// SPDX-License-Identifier: GPL-2.0
#include "remora-node/calls.hpp"

#include <algorithm>
#include <array>
#include <cstring>

#include <dlfcn.h>

#include "remora-node/clock.hpp"
#include "support/failure.hpp"

namespace remora::daemon {

namespace {

// How long the other work of the slow path's thread waits for calls, and that of a transport's.
constexpr std::uint64_t run_ns_max = 200 * BASE_NSEC_PER_USEC;
constexpr std::uint64_t run_own_ns_max = 200 * BASE_NSEC_PER_USEC;

constexpr rmem_run_ops run_ops{[](void* carrier, const rmem_extent* extent) -> void* {
    auto data = static_cast<node::Host*>(carrier)->data(*extent);
    return const_cast<std::uint8_t*>(data.data());
}};

void check_loaded(rmem_run_error error, const std::string& file, std::uint32_t space) {
    switch (error) {
    case RMEM_RUN_OK:
        return;
    case RMEM_RUN_FULL:
        throw Failure("{} offloads are loaded, which is the most: remove one", RMEM_RUN_OFFLOADS);
    case RMEM_RUN_EXISTS:
        throw Failure("{}: a client of space {} has an offload of that id already: remove it first",
                      file, space);
    case RMEM_RUN_NO_SPACE:
        throw Failure("no space {} with memory of its own, or no space of a client: 'remora node "
                      "space list' has them",
                      space);
    case RMEM_RUN_CLIENTS_MAX:
        throw Failure("{} clients are the most of an offload: name fewer", RMEM_RUN_CLIENTS);
    default:
        throw Failure("{} is no offload for this node: build it for version {} of "
                      "remora/offload.h, with an id, a name, a step and a budget up to {} us",
                      file, RMEM_OFFLOAD_VERSION, RMEM_BUDGET_US_MAX);
    }
}

} // namespace

struct Calls::Table {
    explicit Table(node::Host& host)
        : memory(rmem_run_bytes(host.core()) / sizeof(Line) + 1), from(RMEM_RUN_CALLS) {
        rmem_run_init(&core, host.core(), &run_ops, &host, memory.data());
    }

    struct alignas(64) Line {
        std::byte bytes[64];
    };
    rmem_run core;
    std::vector<Line> memory;
    struct From {
        Path path;
        unsigned thread;
    };
    std::vector<From> from; // by the calls' index
};

Calls::Calls(node::Host& host) : host_(host) {}
Calls::~Calls() = default;

void Calls::Closing::operator()(void* handle) const {
    dlclose(handle);
}

Calls::Table& Calls::table() {
    std::lock_guard lock(lock_);
    if (!table_)
        table_ = std::make_unique<Table>(host_);
    return *table_;
}

// ---- programs ----

void Calls::load(const std::string& file, std::uint32_t space, std::uint32_t budget_us,
                 const std::vector<std::uint32_t>& clients) {
    if (file.find('/') == std::string::npos)
        throw Failure("'{}' is not the path of a file: write ./{}", file, file);
    Handle handle(dlopen(file.c_str(), RTLD_NOW | RTLD_LOCAL));
    if (!handle)
        throw Failure("can't load {}", dlerror());
    auto* ops = static_cast<const rmem_offload_ops*>(dlsym(handle.get(), "rmem_offload"));
    if (!ops)
        throw Failure("{} is no offload: it has no symbol rmem_offload", file);
    rmem_run& core = table().core;
    space_gone();
    host_.with_spaces([&] {
        std::lock_guard lock(lock_);
        check_loaded(rmem_run_load(&core, ops, space, budget_us, clients.data(),
                                   static_cast<u32>(clients.size())),
                     file, space);
    });
    for (const rmem_run_offload& each : core.offload) {
        Handle& place = handle_[&each - core.offload];
        if (each.ops == ops && !place) // the file can be loaded for several spaces
            place = std::move(handle);
    }
}

void Calls::space_gone() {
    if (!table_)
        return;
    u32 place;
    do {
        host_.with_spaces([&] {
            std::lock_guard lock(lock_);
            place = rmem_run_dead(&table_->core);
            if (place < RMEM_RUN_OFFLOADS)
                rmem_run_unload(&table_->core, &table_->core.offload[place], false);
        });
        if (place < RMEM_RUN_OFFLOADS)
            handle_[place].reset();
    } while (place < RMEM_RUN_OFFLOADS);
}

void Calls::remove(const std::string& name, std::uint32_t space,
                   const std::function<void()>& between) {
    for (rmem_run_offload& each : table().core.offload) {
        if (!each.ops || name != each.ops->name || each.place.space != space)
            continue;
        unsigned tries = 0;
        auto gone = [&] {
            std::lock_guard lock(lock_);
            return rmem_run_unload(&table_->core, &each, tries++ >= RMEM_RUN_UNLOAD_TRIES);
        };
        while (!gone())
            between();
        handle_[&each - table_->core.offload].reset();
        return;
    }
    throw Failure("space {} has no offload {}: 'remora node offload list' has them", space, name);
}

std::vector<OffloadReport> Calls::list() {
    std::vector<OffloadReport> reports;
    std::lock_guard lock(lock_);
    if (!table_)
        return reports;
    for (const rmem_run_offload& each : table_->core.offload) {
        if (!each.ops)
            continue;
        std::vector<std::uint32_t> clients;
        for (const rmem_place& client : std::span(each.client, each.clients))
            clients.push_back(client.space);
        reports.push_back({each.ops->name, each.ops->id, each.place.space, std::move(clients),
                           each.budget_us, each.calls, each.ended, each.failed, each.over_budget,
                           each.used_ns});
    }
    return reports;
}

// ---- calls ----

bool Calls::admit(const rmem_head& head, std::span<const std::uint8_t> args, const Path& path,
                  unsigned thread, rmem_answer& answer) {
    std::lock_guard lock(lock_);
    rmem_run& core = table_->core;
    rmem_call* call = rmem_run_admit(&core, &head, &answer);
    if (!call)
        return false;
    std::ranges::copy(args, call->args);
    table_->from[call->index] = {path, thread};
    rmem_run_begin(&core, call);
    return true;
}

bool Calls::any() {
    std::lock_guard lock(lock_);
    return table_ && (rmem_run_any(&table_->core) || !left_.empty());
}

void Calls::end(rmem_call& call, const End& ended) {
    rmem_answer answer;
    std::uint32_t limit_bytes;
    {
        std::lock_guard slot(host_.lock_of_slot(call.slot));
        rmem_run_settle(&table_->core, &call, &answer);
        limit_bytes = rmem_node_datagram_bytes(&answer);
    }
    ended({call, table_->from[call.index].path, answer, limit_bytes});
}

// The time of rounds of steps. The processor might have been another thread's meanwhile, which is
// no call's fault. To ask for the thread's own time takes longer than a round, so that begins with
// the second one: of the first, no more counts than a round usually takes.
class Calls::Stopwatch {
public:
    // From the first round's begin to the last one's end.
    std::uint64_t since_first_ns() const { return ended_ - first_; }
    void begin() {
        if (rounds_++ == 1) {
            thread_began_ = clock_ns(CLOCK_THREAD_CPUTIME_ID);
            ended_ = fine_now_ns();
            told_ = outside_ = 0;
        }
        began_ = fine_now_ns();
        outside_ += began_ - ended_;
        if (!first_)
            first_ = began_;
    }
    std::uint64_t end() {
        ended_ = fine_now_ns();
        std::uint64_t elapsed = ended_ - began_;
        if (!thread_began_) {
            elapsed = std::min(elapsed, suspicious_ns);
        } else if (elapsed > suspicious_ns) {
            const std::uint64_t used = clock_ns(CLOCK_THREAD_CPUTIME_ID) - thread_began_;
            elapsed = std::min(elapsed, used - std::min(used, told_ + outside_));
        }
        told_ += elapsed;
        return elapsed;
    }

private:
    static constexpr std::uint64_t suspicious_ns = 20 * BASE_NSEC_PER_USEC;
    unsigned rounds_ = 0;
    std::uint64_t thread_began_ = 0;
    std::uint64_t first_ = 0, began_ = 0, ended_ = 0;
    std::uint64_t told_ = 0, outside_ = 0; // of rounds, and between them, since then
};

std::optional<std::span<rmem_call*>> Calls::round(Stopwatch& watch, Round& calls) {
    u32 count;
    {
        std::lock_guard lock(lock_);
        count = rmem_run_take(&table_->core, calls.data());
    }
    if (!count)
        return {};
    watch.begin();
    rmem_run_step(calls.data(), count, RMEM_RUN_ROUND / count);
    const std::uint64_t elapsed = watch.end();
    std::lock_guard lock(lock_);
    std::size_t done = 0;
    for (rmem_call* call = rmem_run_charge(&table_->core, calls.data(), count, elapsed); call;
         call = call->next)
        calls[done++] = call;
    return std::span(calls).first(done);
}

void Calls::give(std::span<rmem_call* const> calls) {
    if (calls.empty())
        return;
    std::lock_guard lock(lock_);
    for (rmem_call* call : calls)
        rmem_run_give(&table_->core, call);
}

void Calls::run(const End& ended) {
    if (!any())
        return;
    wanted_++;
    std::lock_guard stepping(stepping_);
    wanted_--;
    std::vector<rmem_call*> left;
    {
        std::lock_guard lock(lock_);
        left.swap(left_);
    }
    for (rmem_call* call : left)
        end(*call, ended);
    give(left);
    Stopwatch watch;
    Round calls;
    do {
        const std::optional<std::span<rmem_call*>> done = round(watch, calls);
        if (!done)
            return;
        for (rmem_call* call : *done)
            end(*call, ended);
        give(*done);
    } while (watch.since_first_ns() < run_ns_max);
}

void Calls::run_own(unsigned thread, std::size_t count,
                    const std::function<bool(const Path&)>& takes, const End& ended) {
    std::unique_lock stepping(stepping_, std::try_to_lock);
    Stopwatch watch;
    Round calls;
    // A thread that takes the lock again and again would keep it from the one that waits.
    while (stepping && count && !wanted_ && watch.since_first_ns() < run_own_ns_max) {
        const std::optional<std::span<rmem_call*>> done = round(watch, calls);
        if (!done)
            return;
        const auto others = std::partition(done->begin(), done->end(), [&](rmem_call* call) {
            const Table::From& from = table_->from[call->index];
            return from.thread == thread && takes(from.path);
        });
        const std::span own(done->begin(), others);
        for (rmem_call* call : own)
            end(*call, ended);
        give(own);
        count -= std::min(count, own.size());
        if (others == done->end())
            continue;
        std::lock_guard lock(lock_);
        left_.insert(left_.end(), others, done->end());
    }
}

} // namespace remora::daemon
