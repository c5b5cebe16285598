// SPDX-License-Identifier: GPL-2.0
// Limits of control groups on the memory that a node lends.
#include "node/memory.hpp"

#include <cstdio>
#include <filesystem>
#include <fstream>
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
    std::uint64_t limit(const std::string& lines) {
        put("groups", lines);
        return cgroup_limit_bytes(root_ / "groups", root_);
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
    EXPECT_EQ(cgroup_limit_bytes(root_ / "nowhere", root_), 0U);
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
            Memory memory(bytes, false);
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
}

} // namespace

} // namespace remora::node
