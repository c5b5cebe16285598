// SPDX-License-Identifier: GPL-2.0
// Accesses that may raise SIGBUS.
#pragma once

#include <csetjmp>
#include <csignal>
#include <cstdint>

namespace remora::test {

// While it exists, SIGBUS ends an attempt.
class SignalTrap {
public:
    explicit SignalTrap(int signal) : signal_(signal) {
        struct sigaction action {};
        action.sa_sigaction = [](int, siginfo_t* info, void*) {
            address = info->si_addr;
            siglongjmp(back, 1);
        };
        action.sa_flags = SA_SIGINFO;
        sigaction(signal, &action, &before_);
    }
    ~SignalTrap() { sigaction(signal_, &before_, nullptr); }
    SignalTrap(const SignalTrap&) = delete;
    SignalTrap& operator=(const SignalTrap&) = delete;

    // Address in the signal; NULL: no signal came.
    template <typename Fn>
    void* attempt(Fn fn) {
        address = nullptr;
        if (!sigsetjmp(back, 1))
            fn();
        return address;
    }

private:
    static inline thread_local sigjmp_buf back;
    static inline thread_local void* volatile address;

    int signal_;
    struct sigaction before_ {};
};

// Reads *byte and returns the signal's address; NULL: no signal came.
inline void* bus_error_at(const volatile std::uint8_t* byte) {
    return SignalTrap(SIGBUS).attempt([&] { static_cast<void>(*byte); });
}

} // namespace remora::test
