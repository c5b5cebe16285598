// SPDX-License-Identifier: GPL-2.0
// Limits of control groups on the memory that a node lends.
#include "node/memory.hpp"

#include <cstdio>
#include <filesystem>
#include <fstream>
#include <optional>
#include <string>

#include <sched.h>
#include <sys/mount.h>
#include <sys/wait.h>
#include <unistd.h>

#include <gtest/gtest.h>

#include "support/failure.hpp"

namespace remora::node {

namespace {

namespace fs = std::filesystem;

class CgroupLimit : public testing::Test {
protected:
    CgroupLimit() {
        std::string name = testing::TempDir() + "remora-cgroup-XXXXXX";
        root_ = mkdtemp(name.data());
    }
    ~CgroupLimit() override { fs::remove_all(root_); }

    void put(const fs::path& file, const std::string& text) {
        fs::create_directories((root_ / file).parent_path());
        std::ofstream(root_ / file) << text << "\n";
    }
    // Of a process with these lines in /proc/self/cgroup.
    std::optional<CgroupMemory> memory(const std::string& lines) {
        put("groups", lines);
        return cgroup_memory(root_ / "groups", root_);
    }
    // 0: there is none.
    std::uint64_t limit(const std::string& lines) {
        auto group = memory(lines);
        return group ? group->limit_bytes : 0;
    }
    std::uint64_t free_bytes(const std::string& lines) {
        auto group = memory(lines);
        return group ? group->free_bytes() : 0;
    }

    fs::path root_;
};

TEST_F(CgroupLimit, IsTheLeastOfAGroupAndItsParents) {
    put("a/b/c/memory.max", "max");
    put("a/b/memory.max", "4096000");
    put("a/memory.max", "8192000");
    EXPECT_EQ(limit("0::/a/b/c"), 4'096'000U);
    EXPECT_EQ(limit("0::/a"), 8'192'000U);
}

TEST_F(CgroupLimit, IsReadInVersionOneToo) {
    put("memory/a/memory.limit_in_bytes", "4096000");
    put("memory/memory.limit_in_bytes", "9223372036854771712");
    EXPECT_EQ(limit("9:name=systemd:/\n4:hugetlb,memory:/a/b\n0::/"), 4'096'000U);
    EXPECT_EQ(limit("4:memory:/"), 9'223'372'036'854'771'712U);
}

TEST_F(CgroupLimit, OfAContainerIsAtItsRoot) {
    put("memory.max", "4096000");
    EXPECT_EQ(limit("0::/not/mounted/here"), 4'096'000U);
}

TEST_F(CgroupLimit, IsNoneWithoutGroups) {
    put("memory.max", "max");
    EXPECT_EQ(limit("0::/"), 0U);
    EXPECT_EQ(limit("nonsense"), 0U);
    EXPECT_FALSE(cgroup_memory(root_ / "nowhere", root_));
}

TEST_F(CgroupLimit, IsReducedByMemoryInUse) {
    put("a/memory.max", "4096000");
    EXPECT_EQ(free_bytes("0::/a"), 4'096'000U) << "without memory.current";
    put("a/memory.current", "1096000");
    EXPECT_EQ(free_bytes("0::/a"), 3'000'000U);
    EXPECT_EQ(limit("0::/a"), 4'096'000U);
    put("a/memory.current", "4096001");
    EXPECT_EQ(free_bytes("0::/a"), 0U) << "the limit may be lowered below the usage";
}

TEST_F(CgroupLimit, OfAFullParentIsLessThanThatOfTheGroup) {
    put("a/memory.max", "8000000");
    put("a/memory.current", "7000000");
    put("a/b/memory.max", "4000000");
    put("a/b/memory.current", "1000000");
    EXPECT_EQ(free_bytes("0::/a/b"), 1'000'000U);
    EXPECT_EQ(limit("0::/a/b"), 8'000'000U);
}

// The kernel reclaims pages of files and such slabs before it kills a process.
TEST_F(CgroupLimit, IsNotReducedByReclaimableMemory) {
    put("a/memory.max", "4000000");
    put("a/memory.current", "3000000");
    put("a/memory.stat", "anon 500000\nfile 2000000\ninactive_anon 7\ninactive_file 1000000\n"
                         "active_file 200000\nslab_reclaimable 30000\nslab 40000");
    EXPECT_EQ(free_bytes("0::/a"), 2'230'000U);
    put("memory/a/memory.limit_in_bytes", "4000000");
    put("memory/a/memory.usage_in_bytes", "3000000");
    put("memory/a/memory.stat", "inactive_file 7\nactive_file 7\ntotal_inactive_file 1000000\n"
                                "total_active_file 200000");
    EXPECT_EQ(free_bytes("4:memory:/a"), 2'200'000U);
    // The files are read one after the other, and the numbers may not fit together.
    put("a/memory.current", "1000");
    EXPECT_EQ(free_bytes("0::/a"), 4'000'000U);
}

// The exit status of a child that makes so much memory where its groups' files are those of root.
int status_of_memory(std::size_t bytes, const fs::path& root) {
    constexpr int refused = 1, unable = 2;
    pid_t child = fork();
    if (!child) {
        if (unshare(CLONE_NEWNS | (geteuid() ? CLONE_NEWUSER : 0)) ||
            mount(nullptr, "/", nullptr, MS_REC | MS_PRIVATE, nullptr) ||
            mount(root.c_str(), "/sys/fs/cgroup", nullptr, MS_BIND, nullptr))
            _exit(unable);
        try {
            Memory memory(bytes, false, "--memory");
            _exit(0);
        } catch (const Failure& failure) {
            std::fprintf(stderr, "%s\n", failure.what());
            _exit(std::string(failure.what()).find("control group") != std::string::npos ? refused
                                                                                         : unable);
        }
    }
    int status = 0;
    waitpid(child, &status, 0);
    return WIFEXITED(status) ? WEXITSTATUS(status) : -1;
}

TEST_F(CgroupLimit, IsHeldByTheNodesMemory) {
    constexpr std::size_t bytes = 16 << 20;
    auto allow = [&](std::uint64_t limit) {
        put("memory.max", std::to_string(limit));
        put("memory/memory.limit_in_bytes", std::to_string(limit));
    };
    allow(std::uint64_t{1} << 40);
    if (status_of_memory(bytes, root_))
        GTEST_SKIP() << "can't mount, or this system has no memory to spare";
    allow(bytes - 1);
    EXPECT_EQ(status_of_memory(bytes, root_), 1);
    allow(2 * bytes);
    EXPECT_EQ(status_of_memory(bytes, root_), 0);
    for (const char* usage : {"memory.current", "memory/memory.usage_in_bytes"})
        put(usage, std::to_string(bytes + 1));
    EXPECT_EQ(status_of_memory(bytes, root_), 1);
}

} // namespace

} // namespace remora::node
