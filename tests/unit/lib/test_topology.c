/* SPDX-License-Identifier: Apache-2.0 */
/* test_topology.c - ranks of other engines, in cases worked out by hand */
#include "lib/kvt/topology.h"
#include "tests/unit/tests.h"

struct mapping_case {
	const char *what;
	struct kvt_topology local;
	int64_t remote_tp, remote_dcp;
	const char *want;	/* attention | states | all | slots | offset consumers */
};

#define LOCAL(rank, size, heads) .tp_rank = (rank), .tp_size = (size), \
	.block_size = 16, .kv_heads = (heads), .dcp_size = 1

static const struct mapping_case cases[] = {
	{ "the same TP", { LOCAL(1, 2, 8) }, 2, 1, "1|-|1|0|0 1" },
	{ "one remote rank has the heads of two", { LOCAL(1, 4, 8) }, 2, 1,
	  "0|-|0|0|1 2" },
	{ "two remote ranks have them", { LOCAL(1, 2, 8) }, 4, 1, "2,3|-|2,3|0,1|0 1" },
	{ "a head that two ranks hold is read once", { LOCAL(0, 1, 2) }, 4, 1,
	  "0,2|-|0,2|0,1|0 1" },
	{ "states are on all of them", { LOCAL(0, 1, 2), .has_states = true }, 4, 1,
	  "0,2|0,1,2,3|0,1,2,3|0,0,1,1|0 1" },
	{ "states of the same TP", { LOCAL(1, 2, 2), .has_states = true }, 2, 1,
	  "1|1|1|0|0 1" },
	{ "more ranks here than heads", { LOCAL(5, 8, 4) }, 2, 1, "1|-|1|0|0 4" },
	{ "MLA reads one", { LOCAL(1, 2, 1), .mla = true }, 4, 1, "2|-|2|0|0 1" },
	{ "MLA that is sharded here and there: rank 5 has shard 1 of 2",
	  { .tp_rank = 5, .tp_size = 8, .block_size = 16, .kv_heads = 1, .dcp_size = 2,
	    .mla = true }, 8, 4, "1,3,5,7|-|1,3,5,7|3,3,3,3|0 1" },
	{ "MLA that is sharded there", { LOCAL(0, 1, 1), .mla = true }, 4, 4,
	  "0,1,2,3|-|0,1,2,3|3,3,3,3|0 1" },
	{ "heads that do not divide", { LOCAL(0, 1, 4) }, 6, 1,
	  "0,2,3,5|-|0,2,3,5|0,1,2,3|0 1" },
};

static void list(char *out, size_t room, const int64_t *at, int64_t n)
{
	size_t used = 0;

	snprintf(out, room, "-");
	for (int64_t i = 0; i < n; i++)
		used += (size_t)snprintf(out + used, room - used, "%s%lld", i ? "," : "",
					 (long long)at[i]);
}

static void test_mapping(void)
{
	for (size_t i = 0; i < LENGTH(cases); i++) {
		const struct mapping_case *c = &cases[i];
		const struct kvt_remote remote = {
			.tp_size = c->remote_tp, .block_size = 16, .physical = 1,
			.dcp_size = c->remote_dcp };
		static struct kvt_tp_mapping m;
		char a[64], s[64], all[64], slots[64], text[300];

		assert_false(kvt_tp_mapping(&m, &c->local, &remote, &why));
		list(a, sizeof(a), m.attention.at, m.attention.n);
		list(s, sizeof(s), m.states.at, m.states.n);
		list(all, sizeof(all), m.all.at, m.all.n);
		list(slots, sizeof(slots), m.slot, m.all.n);
		snprintf(text, sizeof(text), "%s|%s|%s|%s|%lld %lld", a, s, all, slots,
			 (long long)m.offset, (long long)m.consumers);
		if (strcmp(text, c->want))
			print_error("%s\n", c->what);
		assert_string_equal(text, c->want);
	}
}

static void test_refused(void)
{
	const struct kvt_topology good = { LOCAL(0, 2, 8), .engine = "here" };
	struct kvt_topology t = good;
	struct kvt_remote r = { .engine = "there", .tp_size = 3, .block_size = 16,
				.physical = 1, .dcp_size = 1 };
	static struct kvt_tp_mapping m;

	expect(kvt_tp_mapping(&m, &t, &r, &why), KVT_BAD_INPUT,
	       "remote TP size 3 is not a multiple");
	r.engine = "here";
	expect(kvt_remote_check(&t, &r, &why), KVT_BAD_INPUT, NULL);
	r.engine = "there";
	r.tp_size = KVT_MAX_REMOTE_RANKS + 1;
	expect(kvt_tp_mapping(&m, &t, &r, &why), KVT_BAD_INPUT, NULL);
	r.tp_size = 2;
	t.tp_rank = 2;
	expect(kvt_topology_check(&t, &why), KVT_BAD_INPUT, NULL);
	t = good;
	t.dcp_size = 0;
	expect(kvt_topology_check(&t, &why), KVT_BAD_INPUT, NULL);
	t = good;
	assert_false(kvt_tp_mapping(&m, &t, &r, &why));
}

static void test_facts(void)
{
	const struct kvt_topology few = { .tp_rank = 5, .tp_size = 8, .block_size = 16,
					  .kv_heads = 4, .dcp_size = 4 };
	const struct kvt_topology many = { LOCAL(1, 2, 8) };
	const struct kvt_topology latent = { LOCAL(0, 1, 8), .mla = true };
	struct kvt_remote r = { .tp_size = 8 };

	assert_int_equal(kvt_topology_heads(&few), 1);
	assert_int_equal(kvt_topology_heads(&many), 4);
	assert_true(kvt_topology_replicates(&few));
	assert_false(kvt_topology_replicates(&many));
	assert_true(kvt_topology_replicates(&latent));
	assert_false(kvt_remote_replicates(&many, &r));
	r.tp_size = 9;
	assert_true(kvt_remote_replicates(&many, &r));
}

TESTS("topology",
	TEST(test_mapping), TEST(test_refused), TEST(test_facts))
