// SPDX-License-Identifier: GPL-2.0
/* The device's sockets, for IPv4 and IPv6 outside. */
#include "eqds/sock.h"

#include <net/ip.h>
#include <net/udp_tunnel.h>

#include "eqds/icmp.h"
#include "eqds/recv.h"
#include "eqds/train.h"

static int sock_open(struct eqds_dev *ed, bool v6, struct socket **sock)
{
	struct udp_port_cfg port = {
		.family = v6 ? AF_INET6 : AF_INET,
		.local_udp_port = htons(EQDS_PORT),
		.use_udp_checksums = true,
		.use_udp6_tx_checksums = true,
		.use_udp6_rx_checksums = true,
		.ipv6_v6only = true,
		.bind_ifindex = ed->link,
	};
	struct udp_tunnel_sock_cfg tunnel = {
		.sk_user_data = ed,
		.encap_type = 1, /* anything but 0: no kind the stack treats by itself */
		.encap_rcv = eqds_recv,
		.encap_err_lookup = eqds_icmp_lookup,
		.gro_receive = eqds_train_join,
		.gro_complete = eqds_train_complete,
	};
	int err = udp_sock_create(ed->net, &port, sock);

	if (err)
		return err;
	/*
	 * Routers make fragments of IPv4's packets, so no error is needed to tell a path's MTU. The
	 * stack notes forged ones, too: then all packets would leave as fragments of 552 bytes.
	 */
	if (!v6)
		ip_sock_set_mtu_discover((*sock)->sk, IP_PMTUDISC_INTERFACE);
	setup_udp_tunnel_sock(ed->net, *sock, &tunnel);
	return 0;
}

int eqds_sock_open(struct eqds_dev *ed)
{
	int err = sock_open(ed, false, &ed->sock4);

	if (err)
		return err;
	err = sock_open(ed, true, &ed->sock6);
	/* A kernel without IPv6, or with IPv6 off. */
	if (!err || err == -EAFNOSUPPORT || err == -EPFNOSUPPORT) {
		if (err)
			ed->sock6 = NULL;
		return 0;
	}
	udp_tunnel_sock_release(ed->sock4);
	ed->sock4 = NULL;
	return err;
}

/* With the device marked down. Afterwards no packet is on its way through the module. */
void eqds_sock_close(struct eqds_dev *ed)
{
	/* For those that left the lock while the device was up and now send by the socket. */
	synchronize_net();
	dst_cache_reset_now(&ed->route);
	udp_tunnel_sock_release(ed->sock4);
	ed->sock4 = NULL;
	if (ed->sock6)
		udp_tunnel_sock_release(ed->sock6);
	ed->sock6 = NULL;
}
