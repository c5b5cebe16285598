// SPDX-License-Identifier: GPL-2.0
/*
 * A server of one page by HTTP/1.1, as much as a scraper of metrics needs: GET and HEAD, a
 * connection for each request.
 *
 * Bounds: a request's head has at most 8 KiB, a connection 10 seconds. With 16 connections the
 * oldest one makes room for the next, so whoever opens many and says nothing keeps nobody out.
 */
#pragma once

#include <functional>
#include <string>
#include <string_view>

#include "support/descriptor.hpp"

namespace remora {

struct HttpPage {
    std::string media_type, text;
};

// accept: the request's Accept header, in lower case.
using HttpPageOf = std::function<HttpPage(std::string_view accept)>;

// A socket that listens at HOST:PORT (0: one that is free), or descriptor N of a service manager
// for "fd:N". Throws Failure.
Descriptor http_listen(const std::string& address);

// http://HOST:PORT as the socket has it.
std::string http_address(const Descriptor& listener);

// Serves page at path until a signal ends the process. Throws Failure: the socket fails.
[[noreturn]] void http_serve(const Descriptor& listener, std::string_view path,
                             const HttpPageOf& page);

} // namespace remora
