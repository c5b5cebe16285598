// SPDX-License-Identifier: MIT
// shm:PATH,key=FILE[,space=N]
#include "src/transport/shm.hpp"

#include "src/backend/client.hpp"
#include "src/backend/target.hpp"

namespace remora::lib {

namespace {

Open parse(std::string_view text, const remote_options& options) {
    std::string path(take_place(text));
    ClientOptions client = client_options(text, "shm:" + path, options);
    return [path, client](Clock::time_point limit) {
        std::vector<Connect> candidates{
            [path](Clock::time_point until) { return std::make_unique<Shm>(path, until); }};
        return std::make_unique<Client>(path, candidates, client, open_limit(client, limit));
    };
}

} // namespace

constinit const Scheme shm_scheme{"shm", "shm:PATH,key=FILE", false, parse};

} // namespace remora::lib
