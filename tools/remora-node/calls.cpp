// SPDX-License-Identifier: GPL-2.0
#include "remora-node/calls.hpp"

#include <algorithm>
#include <array>
#include <cerrno>
#include <chrono>
#include <cstring>

#include <dlfcn.h>

#include "remora-node/clock.hpp"
#include "support/failure.hpp"
#include "support/say.hpp"

namespace remora::daemon {

namespace {

// How long the other work of the slow path's thread waits for calls, and that of a transport's.
constexpr std::uint64_t run_ns_max = 200 * BASE_NSEC_PER_USEC;
constexpr std::uint64_t run_own_ns_max = 200 * BASE_NSEC_PER_USEC;

// A program's start ends within so long, or fails.
constexpr std::chrono::seconds start_max{60};

[[noreturn]] void fail_to_load(int error, const std::string& file, std::uint32_t space) {
    switch (error) {
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

// Words for the errors that remora/offload.h names.
[[noreturn]] void fail_to_start(int error, const std::string& file, std::uint32_t space) {
    switch (error) {
    case -ENODEV:
        throw Failure("{} needs persistent memory, and space {} has none: start remora-node with "
                      "--memory-file {}=FILE",
                      file, space, space);
    case -EPROTONOSUPPORT:
        throw Failure("the memory file of space {} has another format, or another version of it, "
                      "than {} knows: name another file",
                      space, file);
    case -EUCLEAN:
        throw Failure("the memory file of space {} was made with another size, or is damaged: "
                      "restore it, or name another file",
                      space);
    case -ENOLINK:
        throw Failure("{} calls another node, and has no link of that name: give its --link "
                      "NAME=TARGET",
                      file);
    case -ETIMEDOUT:
        throw Failure("{}: a node that it calls doesn't answer, or has no such program: load it "
                      "there first",
                      file);
    default:
        throw Failure("{} can't start for space {}: {}: its README has the reasons", file, space,
                      std::strerror(-error));
    }
}

// A store can't hold calls.
void lapse(node::Host& host) {
    const rmem_store* store = host.core()->store;
    if (!store || store->lapsed)
        return;
    host.lapse();
    warn("remora-node: warning: an offload is loaded, whose calls --store can't hold: the memory "
         "ends with this process");
}

} // namespace

struct Calls::Table {
    explicit Table(Calls& calls)
        : memory(rmem_run_bytes(calls.host_.core()) / sizeof(Line) + 1), from(RMEM_RUN_CALLS) {
        rmem_run_init(&core, calls.host_.core(), &run_ops, &calls, memory.data());
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

constexpr rmem_run_ops Calls::run_ops{
    [](void* carrier, const rmem_extent* extent) -> void* {
        auto data = static_cast<Calls*>(carrier)->host_.data(*extent);
        return const_cast<std::uint8_t*>(data.data());
    },
    [](void* carrier, void* at, u64 bytes) {
        static_cast<Calls*>(carrier)->host_.file()->persist(at, bytes);
        return 0;
    },
    [](void* carrier) {
        node::MemoryFile* file = static_cast<Calls*>(carrier)->host_.file();
        return !file || file->drain() ? 0 : -EIO;
    },
    [](void* carrier, rmem_call* call, u64 key) {
        return static_cast<Calls*>(carrier)->key_lock(call, key);
    },
    [](void* carrier, rmem_call* call, const char* link, u32 function, const void* args,
       u32 bytes) {
        return static_cast<Calls*>(carrier)->forward(call, link, function, args, bytes);
    },
    [](void* carrier, rmem_call* call, void* answer) {
        return static_cast<Calls*>(carrier)->forwarded(call, answer);
    }};

Calls::Calls(node::Host& host, std::function<void()> poke) : host_(host), poke_(std::move(poke)) {}
Calls::~Calls() = default;

void Calls::Closing::operator()(void* handle) const {
    dlclose(handle);
}

Calls::Table& Calls::table() {
    std::lock_guard lock(lock_);
    if (!table_)
        table_ = std::make_unique<Table>(*this);
    return *table_;
}

// ---- programs ----

void Calls::load(const std::string& file, std::uint32_t space, std::uint32_t budget_us,
                 const std::vector<std::uint32_t>& clients, const OpenLinks& links,
                 const std::function<void()>& between) {
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
    Links opened;
    if (links)
        opened = links([this](Forward& forward, int error, const void* answer) {
            forward_ended(forward, error, answer);
        });
    int loaded = 0;
    host_.with_spaces([&] {
        std::lock_guard lock(lock_);
        loaded = rmem_run_load(&core, ops, space, budget_us, clients.data(),
                               static_cast<u32>(clients.size()));
        if (loaded < 0)
            return;
        lapse(host_);
        core.offload[loaded].leaves = ops->start; // admits no call before that has ended
    });
    if (loaded < 0)
        fail_to_load(loaded, file, space);
    const auto place = static_cast<u32>(loaded);
    handle_[place] = std::move(handle);
    links_[place] = std::move(opened);
    if (!ops->start)
        return;
    if (int error = start(core.offload[place], between)) {
        leave(place, true);
        fail_to_start(error, file, space);
    }
    std::lock_guard lock(lock_);
    core.offload[place].leaves = false;
}

// A call of no client, in this thread. While it waits, the others' calls go on. No other call of
// its offload runs, so it waits for forwards alone.
int Calls::start(rmem_run_offload& offload, const std::function<void()>& between) {
    const auto call = std::make_unique<rmem_call>();
    const auto deadline = std::chrono::steady_clock::now() + start_max;
    rmem_run_start_init(&table_->core, &offload, call.get());
    int error = RMEM_AGAIN;
    while (error == RMEM_AGAIN && std::chrono::steady_clock::now() < deadline) {
        {
            std::lock_guard stepping(stepping_);
            error = rmem_run_start_step(call.get());
        }
        if (error == RMEM_AGAIN)
            between();
        std::unique_lock lock(lock_);
        if (call->parks && error == RMEM_AGAIN)
            woken_.wait_for(lock, std::chrono::milliseconds(10), [&] { return call->woken; });
        call->woken = false;
    }
    std::lock_guard stepping(stepping_);
    std::lock_guard lock(lock_);
    let_go(call.get());
    return error == RMEM_AGAIN ? -ETIMEDOUT : error;
}

// False: calls of it run. Their forwards might not have ended when it is gone.
bool Calls::leave(u32 place, bool stop) {
    {
        std::lock_guard lock(lock_);
        if (!rmem_run_unload(&table_->core, place, stop))
            return false;
    }
    links_[place].clear();
    handle_[place].reset();
    return true;
}

void Calls::space_gone() {
    if (!table_)
        return;
    u32 place;
    do {
        host_.with_spaces([&] {
            std::lock_guard lock(lock_);
            place = rmem_run_dead(&table_->core);
        });
    } while (place < RMEM_RUN_OFFLOADS && leave(place, false));
}

void Calls::remove(const std::string& name, std::uint32_t space,
                   const std::function<void()>& between) {
    const rmem_run& core = table().core;
    for (u32 place = 0; place < RMEM_RUN_OFFLOADS; place++) {
        const rmem_run_offload& each = core.offload[place];
        if (!each.ops || name != each.ops->name || each.place.space != space)
            continue;
        for (unsigned tries = 0; !leave(place, tries >= RMEM_RUN_UNLOAD_TRIES); tries++)
            between();
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

// ---- locks and forwards ----

int Calls::key_lock(rmem_call* call, std::uint64_t key) {
    const int error = locks_.lock(call, key);
    if (error == -EAGAIN)
        rmem_run_park(call);
    return error;
}

int Calls::forward(rmem_call* call, const char* link, std::uint32_t function, const void* args,
                   std::uint32_t bytes) {
    const Links& links = links_[call->offload - table_->core.offload];
    const auto found = links.find(link);
    if (found == links.end())
        return -ENOLINK;
    if (bytes > RMEM_FORWARD_BYTES_MAX || function >= RMEM_FUNCTIONS_MAX)
        return -EINVAL;
    auto& forwards = forwards_[call];
    if (forwards.size() == RMEM_FORWARDS_MAX)
        return -ENOSPC;
    auto made = std::make_shared<Forward>();
    made->call = call;
    made->offload = call->offload->ops->id;
    made->function = function;
    const auto* from = static_cast<const std::uint8_t*>(args);
    made->args.assign(from, from + bytes);
    forwards.push_back(made);
    found->second->send(std::move(made));
    return 0;
}

int Calls::forwarded(rmem_call* call, void* answer) {
    auto& forwards = forwards_[call];
    if (forwards.empty())
        return -ENOENT;
    const std::shared_ptr<Forward> oldest = forwards.front();
    {
        std::lock_guard lock(lock_);
        if (!oldest->done) {
            rmem_run_park(call);
            return -EAGAIN;
        }
    }
    forwards.pop_front();
    std::ranges::copy(oldest->answer, static_cast<std::uint8_t*>(answer));
    return oldest->error;
}

// In the link's thread.
void Calls::forward_ended(Forward& forward, int error, const void* answer) {
    {
        std::lock_guard lock(lock_);
        if (!forward.call)
            return;
        forward.done = true;
        forward.error = error;
        std::memcpy(forward.answer.data(), answer, forward.answer.size());
        rmem_run_wake(&table_->core, forward.call);
    }
    woken_.notify_all();
    poke_();
}

// The call has ended. stepping_ and lock_.
void Calls::let_go(rmem_call* call) {
    locks_.release(call, [&](rmem_call* next) { rmem_run_wake(&table_->core, next); });
    const auto found = forwards_.find(call);
    if (found == forwards_.end())
        return;
    for (const auto& forward : found->second)
        forward->call = nullptr;
    forwards_.erase(found);
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
    for (rmem_call* call : std::span(calls).first(done))
        let_go(call);
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
    std::vector<rmem_call*> left;
    bool runs;
    {
        std::lock_guard lock(lock_);
        if (!table_)
            return;
        rmem_run_rouse(&table_->core);
        runs = rmem_run_any(&table_->core);
        left.swap(left_);
    }
    for (rmem_call* call : left)
        end(*call, ended);
    give(left);
    if (!runs)
        return;
    wanted_++;
    std::lock_guard stepping(stepping_);
    wanted_--;
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
