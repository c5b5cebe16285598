// SPDX-License-Identifier: GPL-2.0 OR MIT
#include "core/edm/pim.h"

#include "core/base/bytes.h"

void edm_pim_init(struct edm_pim *p, struct edm_match *m)
{
	base_zero(p, sizeof(*p));
	p->m = m;
	p->next = EDM_PORTS_MAX;
}

static u32 pim_ports(const struct edm_pim *p)
{
	return p->m->config.demand.ports;
}

static void pim_request(struct edm_pim *p, u64 now_ns)
{
	edm_match_release(p->m, now_ns);
	for (u32 d = 0; d < pim_ports(p); d++) {
		u16 source;

		p->request[d] = EDM_PIM_NONE;
		if (edm_match_is_idle(p->m, EDM_DESTINATION, (u16)d) &&
		    edm_match_best(p->m, now_ns, EDM_DESTINATION, (u16)d, &source) != EDM_LEVELS)
			p->request[d] = source;
	}
}

/* Place of a request in the order of service; requests of one level take turns. */
static u32 pim_rank(const struct edm_pim *p, u16 source, u16 destination)
{
	const struct edm_demands *demands = &p->m->demands;
	const struct edm_demand *first = edm_demand_first(demands, source, destination);
	const u32 ports = pim_ports(p), last = demands->out[source].last;
	const u32 turn = (destination + 2 * ports - last - 1) % ports;

	return (first ? edm_demand_rank(demands, first->level) : EDM_LEVELS) * ports + turn;
}

static void pim_grant(struct edm_pim *p)
{
	for (u32 s = 0; s < pim_ports(p); s++)
		p->grant[s] = EDM_PIM_NONE;
	for (u32 d = 0; d < pim_ports(p); d++) {
		const u16 source = p->request[d];
		u16 *grant;

		if (source == EDM_PIM_NONE)
			continue;
		grant = &p->grant[source];
		if (*grant == EDM_PIM_NONE ||
		    pim_rank(p, source, (u16)d) < pim_rank(p, source, *grant))
			*grant = (u16)d;
	}
}

void edm_pim_tick(struct edm_pim *p, u64 now_ns)
{
	if (p->cycle == 0)
		pim_request(p, now_ns);
	else if (p->cycle == 1)
		pim_grant(p);
	else
		p->next = 0;
	p->cycle = (p->cycle + 1) % EDM_PIM_CYCLES;
}

bool edm_pim_next(struct edm_pim *p, u64 now_ns, struct edm_booking *booking)
{
	while (p->next < pim_ports(p)) {
		const u16 source = (u16)p->next++, destination = p->grant[source];
		struct edm_demand *demand = NULL;

		/* A port might have left, or the message ended, since it was requested. */
		if (destination != EDM_PIM_NONE && edm_match_is_idle(p->m, EDM_SOURCE, source) &&
		    edm_match_is_idle(p->m, EDM_DESTINATION, destination))
			demand = edm_demand_first(&p->m->demands, source, destination);
		if (!demand)
			continue;
		edm_match_book(p->m, now_ns, demand, booking);
		return true;
	}
	return false;
}
