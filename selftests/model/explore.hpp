// SPDX-License-Identifier: GPL-2.0
// A small explicit-state model checker: breadth first, so a counterexample is a shortest one.
//
// A model is a class with
//   State                      trivially copyable, bytes alone tell states apart (no padding)
//   State initial() const
//   void successors(const State&, Emit&&) const
//       calls emit(next, violation, label) for every step from a state, in the same
//       order each time; violation: NULL or what the step broke; label() names the step
//   const char* stuck(const State&) const
//       NULL, or why a state without steps is wrong
//
// States that were seen are remembered by 128 bits of hash. Steps are remembered as
// (state they led from, which one of its steps); a trace is made by taking them again.
#pragma once

#include <algorithm>
#include <chrono>
#include <cstdint>
#include <cstdio>
#include <cstring>
#include <string>
#include <type_traits>
#include <unordered_set>
#include <vector>

namespace model {

struct Outcome {
    uint64_t states = 0;
    uint64_t steps = 0;
    uint32_t depth = 0;
    bool whole = true; // every reachable state was seen
    std::string violation;
    std::vector<std::string> trace;
};

struct Hash128 {
    uint64_t a, b;
    bool operator==(const Hash128&) const = default;
};

struct HashOf {
    size_t operator()(const Hash128& h) const { return h.a; }
};

inline uint64_t mix(uint64_t x) {
    x = (x ^ x >> 30) * 0xbf58476d1ce4e5b9ULL;
    x = (x ^ x >> 27) * 0x94d049bb133111ebULL;
    return x ^ x >> 31;
}

template <class State>
Hash128 hash_of(const State& state) {
    static_assert(std::has_unique_object_representations_v<State>);
    const auto* bytes = reinterpret_cast<const unsigned char*>(&state);
    Hash128 h{0x9e3779b97f4a7c15, 0xd1b54a32d192ed03};
    for (size_t at = 0; at < sizeof(State); at += 8) {
        uint64_t word = 0;
        std::memcpy(&word, bytes + at, std::min<size_t>(8, sizeof(State) - at));
        h.a = mix(h.a ^ word);
        h.b = mix(h.b + word * 0x2545f4914f6cdd1dULL);
    }
    return h;
}

template <class Model>
class Explorer {
public:
    using State = typename Model::State;

    Explorer(const Model& model, uint64_t states_max) : model_(model), states_max_(states_max) {}

    Outcome run() {
        std::vector<Pending> layer, next;
        State first = model_.initial();
        seen_.insert(hash_of(first));
        from_.push_back({0, 0});
        layer.push_back({first, 0});
        while (!layer.empty() && out_.violation.empty()) {
            for (const Pending& pending : layer) {
                expand(pending, next);
                if (!out_.violation.empty())
                    break;
            }
            layer.swap(next);
            next.clear();
            out_.depth += !layer.empty();
        }
        out_.states = from_.size();
        return out_;
    }

private:
    struct From {
        uint32_t state;
        uint32_t step;
    };
    struct Pending {
        State state;
        uint32_t index;
    };

    void expand(const Pending& pending, std::vector<Pending>& next) {
        uint32_t step = 0;
        model_.successors(pending.state, [&](const State& state, const char* violation, auto&&) {
            if (!out_.violation.empty())
                return;
            out_.steps++;
            if (violation) {
                out_.violation = violation;
                out_.trace = trace_to(pending.index, step);
                return;
            }
            step++;
            if (from_.size() >= states_max_) {
                out_.whole = false;
                return;
            }
            if (!seen_.insert(hash_of(state)).second)
                return;
            from_.push_back({pending.index, step - 1});
            next.push_back({state, static_cast<uint32_t>(from_.size() - 1)});
        });
        const char* wrong = step || !out_.violation.empty() ? nullptr : model_.stuck(pending.state);
        if (wrong) {
            out_.violation = wrong;
            out_.trace = trace_to(pending.index, ~0u);
        }
    }

    // Labels of the steps to a state, and of one more.
    std::vector<std::string> trace_to(uint32_t index, uint32_t last_step) {
        std::vector<uint32_t> steps;
        if (last_step != ~0u)
            steps.push_back(last_step);
        for (; index; index = from_[index].state)
            steps.push_back(from_[index].step);
        std::reverse(steps.begin(), steps.end());
        std::vector<std::string> labels;
        State state = model_.initial();
        for (uint32_t wanted : steps) {
            uint32_t step = 0;
            State taken{};
            model_.successors(state, [&](const State& next, const char*, auto&& label) {
                if (step++ == wanted) {
                    taken = next;
                    labels.push_back(label());
                }
            });
            state = taken;
        }
        return labels;
    }

    const Model& model_;
    uint64_t states_max_;
    std::unordered_set<Hash128, HashOf> seen_;
    std::vector<From> from_;
    Outcome out_;
};

// TAP.
class Report {
public:
    // violated: a counterexample is wanted.
    void check(const std::string& name, const Outcome& out, bool violated) {
        bool good = violated ? !out.violation.empty() : out.violation.empty() && out.whole;
        printf("# %s: %llu states, %llu steps, depth %u%s\n", name.c_str(),
               static_cast<unsigned long long>(out.states),
               static_cast<unsigned long long>(out.steps), out.depth,
               out.whole ? "" : ", NOT ALL (bound reached)");
        if (!out.violation.empty()) {
            printf("# %s: %s\n", violated ? "as wanted" : "VIOLATED", out.violation.c_str());
            for (size_t i = 0; i < out.trace.size(); i++)
                printf("#   %2zu. %s\n", i + 1, out.trace[i].c_str());
        }
        result(good, name);
    }

    void result(bool good, const std::string& name) {
        printf("%sok %d - %s\n", good ? "" : "not ", ++count_, name.c_str());
        failed_ |= !good;
        fflush(stdout);
    }

    int finish() {
        printf("1..%d\n", count_);
        return failed_;
    }

private:
    int count_ = 0;
    bool failed_ = false;
};

} // namespace model
