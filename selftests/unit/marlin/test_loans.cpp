// SPDX-License-Identifier: GPL-2.0
// Loans to a node: epochs, taking back beside copies, restarts, and a hostile node's words.
#include <array>
#include <random>
#include <set>

#include <gtest/gtest.h>

extern "C" {
#include "core/base/bytes.h"
#include "core/marlin/loans.h"
}

namespace remora::test {

namespace {

// A client's words, and what its node writes.
struct Client {
    Client() { loans_place(&loans, lent.data(), copies.data()); }
    std::uint32_t lend() {
        int number = loans_lend(&loans, ++epoch);
        EXPECT_GE(number, 0);
        return static_cast<std::uint32_t>(number);
    }
    void end(std::uint32_t number) {
        loans_take_back(&loans, number);
        EXPECT_TRUE(loans_is_quiet(&loans, number));
        loans_end(&loans, number);
    }
    std::array<std::uint32_t, MARLIN_LOANS> lent{}, copies{};
    struct loans loans {};
    std::uint32_t epoch = 1000;
};

TEST(Loans, LentWordIsTheEpochUntilItIsTakenBack) {
    Client client;
    std::uint32_t number = client.lend();
    EXPECT_EQ(base_load_le32(&client.lent[number]), client.epoch);
    EXPECT_TRUE(loans_has(&client.loans, number, client.epoch));
    loans_take_back(&client.loans, number);
    EXPECT_EQ(client.lent[number], 0U);
    EXPECT_TRUE(loans_has(&client.loans, number, client.epoch));
    loans_end(&client.loans, number);
    EXPECT_FALSE(loans_has(&client.loans, number, client.epoch));
}

TEST(Loans, CopyUnderWayOfTheEpochIsWaitedForAndNoOther) {
    Client client;
    std::uint32_t number = client.lend();
    base_store_le32(&client.copies[number], client.epoch);
    loans_take_back(&client.loans, number);
    EXPECT_FALSE(loans_is_quiet(&client.loans, number));
    base_store_le32(&client.copies[number], client.epoch - 1);
    EXPECT_TRUE(loans_is_quiet(&client.loans, number));
    client.copies[number] = 0;
    EXPECT_TRUE(loans_is_quiet(&client.loans, number));
}

TEST(Loans, AllAreLentOnceAndOneThatEndsIsLentAgain) {
    Client client;
    std::set<std::uint32_t> numbers;
    for (unsigned i = 0; i < MARLIN_LOANS; i++)
        numbers.insert(client.lend());
    EXPECT_EQ(numbers.size(), std::size_t{MARLIN_LOANS});
    EXPECT_EQ(loans_lend(&client.loans, ++client.epoch), -1);
    client.end(17);
    EXPECT_EQ(client.lend(), 17U);
}

TEST(Loans, NumbersAndEpochsThatAreNoneAreNotFound) {
    Client client;
    std::uint32_t number = client.lend();
    EXPECT_FALSE(loans_has(&client.loans, number, client.epoch + 1));
    EXPECT_FALSE(loans_has(&client.loans, number + 1, client.epoch));
    EXPECT_FALSE(loans_has(&client.loans, MARLIN_LOANS, client.epoch));
    EXPECT_FALSE(loans_has(&client.loans, 0xffff, client.epoch));
    EXPECT_FALSE(loans_has(&client.loans, number + 1, 0));
}

// The words move, as rings of another size do it, and what a dead node left there is gone.
TEST(Loans, RestartWritesTheWordsOfLoansThatAreLent) {
    Client client;
    std::uint32_t lent = client.lend();
    std::uint32_t lent_epoch = client.epoch, taken = client.lend();
    base_store_le32(&client.copies[taken], client.epoch);
    loans_take_back(&client.loans, taken);
    EXPECT_FALSE(loans_is_quiet(&client.loans, taken));
    std::array<std::uint32_t, MARLIN_LOANS> lent_words{}, copies{};
    lent_words.fill(0);
    loans_place(&client.loans, lent_words.data(), copies.data());
    EXPECT_EQ(base_load_le32(&lent_words[lent]), lent_epoch);
    EXPECT_EQ(lent_words[taken], 0U);
    EXPECT_TRUE(loans_is_quiet(&client.loans, taken));
}

TEST(Loans, HostileWordsChangeNoLoan) {
    std::mt19937 random(7);
    Client client;
    std::uint32_t number = client.lend();
    std::uint32_t epoch = client.epoch;
    for (int i = 0; i < 10000; i++) {
        client.lent[random() % MARLIN_LOANS] = static_cast<std::uint32_t>(random());
        client.copies[random() % MARLIN_LOANS] = static_cast<std::uint32_t>(random());
        std::uint32_t other = client.lend();
        ASSERT_NE(other, number);
        loans_take_back(&client.loans, other);
        loans_end(&client.loans, other);
    }
    EXPECT_TRUE(loans_has(&client.loans, number, epoch));
}

} // namespace

} // namespace remora::test
