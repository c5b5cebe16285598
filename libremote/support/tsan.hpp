// SPDX-License-Identifier: MIT
// Orders a ring's receiver after its sender for ThreadSanitizer, which can't see it where both are
// in one process, as in tests: they map the ring at two addresses. As ThreadSanitizer does it for
// sockets, every receiver comes after all earlier senders.
#pragma once

#ifdef __SANITIZE_THREAD__
#include <sanitizer/tsan_interface.h>
#endif

namespace remora {

#ifdef __SANITIZE_THREAD__
inline char ring_order;
inline void ring_sends() {
    __tsan_release(&ring_order);
}
inline void ring_received() {
    __tsan_acquire(&ring_order);
}
#else
inline void ring_sends() {}
inline void ring_received() {}
#endif

} // namespace remora
