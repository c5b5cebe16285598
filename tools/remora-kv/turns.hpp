// SPDX-License-Identifier: GPL-2.0
#pragma once

#include <cstddef>
#include <deque>
#include <utility>

namespace remora::kv {

// Entries of several owners, in a queue each; the owners take turns, an entry each. So an owner
// with one entry waits for one of each other, however many they have.
template <typename Owner, typename Entry, std::deque<Entry> Owner::*queue>
class Turns {
public:
    // The owner lives until its entries are taken.
    void add(Owner& owner, Entry entry) {
        if ((owner.*queue).empty())
            owners_.push_back(&owner);
        (owner.*queue).push_back(std::move(entry));
        size_++;
    }
    std::size_t size() const { return size_; }
    const Entry& next() const { return (owners_.front()->*queue).front(); }
    Entry take() {
        Owner& owner = *owners_.front();
        Entry entry = std::move((owner.*queue).front());
        owners_.pop_front();
        (owner.*queue).pop_front();
        if (!(owner.*queue).empty())
            owners_.push_back(&owner);
        size_--;
        return entry;
    }

private:
    std::deque<Owner*> owners_; // with entries, by turns
    std::size_t size_ = 0;
};

} // namespace remora::kv
