// SPDX-License-Identifier: GPL-2.0
// Coroutines of one thread.
#pragma once

#include <coroutine>
#include <exception>
#include <optional>
#include <utility>

namespace remora::kv {

// Runs at once, until its first wait; its frame ends with it.
struct Detached {
    struct promise_type {
        Detached get_return_object() { return {}; }
        std::suspend_never initial_suspend() noexcept { return {}; }
        std::suspend_never final_suspend() noexcept { return {}; }
        void return_void() {}
        void unhandled_exception() { std::terminate(); }
    };
};

// Runs when it is awaited, once; the waiter gets its value.
template <typename T>
class [[nodiscard]] Task {
public:
    struct promise_type {
        std::optional<T> value;
        std::coroutine_handle<> waiter;

        struct Ending {
            bool await_ready() noexcept { return false; }
            std::coroutine_handle<>
            await_suspend(std::coroutine_handle<promise_type> frame) noexcept {
                return frame.promise().waiter;
            }
            void await_resume() noexcept {}
        };
        Task get_return_object() {
            return Task(std::coroutine_handle<promise_type>::from_promise(*this));
        }
        std::suspend_always initial_suspend() noexcept { return {}; }
        Ending final_suspend() noexcept { return {}; }
        void return_value(T made) { value = std::move(made); }
        void unhandled_exception() { std::terminate(); }
    };

    Task(Task&& other) noexcept : frame_(std::exchange(other.frame_, nullptr)) {}
    Task& operator=(const Task&) = delete;
    ~Task() {
        if (frame_)
            frame_.destroy();
    }

    bool await_ready() const { return false; }
    std::coroutine_handle<> await_suspend(std::coroutine_handle<> waiter) {
        frame_.promise().waiter = waiter;
        return frame_;
    }
    T await_resume() { return std::move(*frame_.promise().value); }

private:
    explicit Task(std::coroutine_handle<promise_type> frame) : frame_(frame) {}
    std::coroutine_handle<promise_type> frame_;
};

} // namespace remora::kv
