// SPDX-License-Identifier: GPL-2.0
/*
 * A node's address on UDP/IP: in ATTACH either RMEM_A_ADDRESS, or NODE, PORT and SCOPE.
 *
 *   [udp:]10.0.0.2[:PORT]   [udp:]fe80::2%eth0   [udp:][fe80::2%eth0][:PORT]
 */
#include <net/ipv6.h>
#include <net/netlink.h>
#include <net/net_namespace.h>

#include "rmem/transport/udp/path.h"
#include "uapi/remora_rmem.h"

static_assert(sizeof(union udp_address) <= sizeof_field(struct rmem_address, bytes));

#define SCHEME "udp:"

static int address_check_unicast(const union udp_address *address, const struct nlattr *attr,
				 struct netlink_ext_ack *extack)
{
	int type;

	if (address->any.sa_family == AF_INET) {
		__be32 in4 = address->in4.sin_addr.s_addr;

		if (!ipv4_is_multicast(in4) && !ipv4_is_lbcast(in4) && !ipv4_is_zeronet(in4))
			return 0;
	} else {
		type = ipv6_addr_type(&address->in6.sin6_addr);
		if ((type & IPV6_ADDR_LINKLOCAL) && !address->in6.sin6_scope_id) {
			NL_SET_ERR_MSG_ATTR(extack, attr,
					    "a link-local NODE needs SCOPE, the interface's index");
			return -EINVAL;
		}
		if (type & IPV6_ADDR_UNICAST)
			return 0;
	}
	NL_SET_ERR_MSG_ATTR(extack, attr, "NODE is not a machine's address");
	return -EINVAL;
}

static int address_from_text(union udp_address *address, const struct nlattr *attr,
			     struct netlink_ext_ack *extack)
{
	char text[RMEM_ADDRESS_TEXT_MAX + 1];
	bool named;

	nla_strscpy(text, attr, sizeof(text));
	named = !strncmp(text, SCHEME, strlen(SCHEME));
	if (rmem_socket_parse(address, text + (named ? strlen(SCHEME) : 0), RMEM_PORT)) {
		NL_SET_ERR_MSG_ATTR(extack, attr,
				    "no such ADDRESS: write [udp:]IP or [udp:][IP]:PORT");
		return -EINVAL;
	}
	return address_check_unicast(address, attr, extack);
}

static int address_from_node(union udp_address *address, struct nlattr **attrs,
			     struct netlink_ext_ack *extack)
{
	const struct nlattr *node = attrs[RMEM_A_NODE];
	u16 port = attrs[RMEM_A_PORT] ? nla_get_u16(attrs[RMEM_A_PORT]) : RMEM_PORT;

	if (!node) {
		NL_SET_ERR_MSG(extack, "NODE is missing: the node's address");
		return -EINVAL;
	}
	if (nla_len(node) == sizeof(struct in_addr)) {
		address->in4.sin_family = AF_INET;
		address->in4.sin_port = htons(port);
		address->in4.sin_addr.s_addr = nla_get_in_addr(node);
	} else if (nla_len(node) == sizeof(struct in6_addr)) {
		address->in6.sin6_family = AF_INET6;
		address->in6.sin6_port = htons(port);
		address->in6.sin6_addr = nla_get_in6_addr(node);
		/* An interface says nothing of an address that is good everywhere. */
		if (attrs[RMEM_A_SCOPE] &&
		    (ipv6_addr_type(&address->in6.sin6_addr) & IPV6_ADDR_LINKLOCAL))
			address->in6.sin6_scope_id = nla_get_u32(attrs[RMEM_A_SCOPE]);
	} else {
		NL_SET_ERR_MSG_ATTR(extack, node, "NODE must have 4 bytes (IPv4) or 16 (IPv6)");
		return -EINVAL;
	}
	return address_check_unicast(address, node, extack);
}

int udp_address_get(struct rmem_address *to, struct nlattr **attrs, struct netlink_ext_ack *extack)
{
	union udp_address address = {};
	int err = attrs[RMEM_A_ADDRESS] ? address_from_text(&address, attrs[RMEM_A_ADDRESS], extack)
					: address_from_node(&address, attrs, extack);

	if (err)
		return err;
	memset(to, 0, sizeof(*to));
	memcpy(to->bytes, &address, sizeof(address));
	snprintf(to->text, sizeof(to->text), "%pISpc", &address.any);
	return 0;
}

int udp_address_put(const struct rmem_address *from, struct sk_buff *reply)
{
	const union udp_address *address = udp_address_of(from);

	if (address->any.sa_family == AF_INET)
		return nla_put_in_addr(reply, RMEM_A_NODE, address->in4.sin_addr.s_addr) ||
		       nla_put_u16(reply, RMEM_A_PORT, ntohs(address->in4.sin_port));
	return nla_put_in6_addr(reply, RMEM_A_NODE, &address->in6.sin6_addr) ||
	       nla_put_u16(reply, RMEM_A_PORT, ntohs(address->in6.sin6_port)) ||
	       (address->in6.sin6_scope_id &&
		nla_put_u32(reply, RMEM_A_SCOPE, address->in6.sin6_scope_id));
}
