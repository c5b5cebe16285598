// SPDX-License-Identifier: GPL-2.0 OR MIT
/*
 * A radix tree searched at the node (Clio, ASPLOS'22, sections 6 and 7.2): one request walks all
 * levels, where reads take a round trip for each. A step looks at one word, which has the address of
 * the next one and its level, and prefetches that.
 *
 * Slices have constant sizes and no step has a loop, so the source can be verified as a BPF program.
 */
#include "tree.h"

#include "../common.h"

#define TREE_NODE_MASK (~(__u64)(TREE_NODE_BYTES - 1))
#define TREE_LEAF_MASK (~(__u64)(TREE_LEAF_BYTES - 1))

enum tree_next { TREE_NEXT_ROOT, TREE_NEXT_WORD, TREE_NEXT_LEAF };

struct tree {
	__u64 addr;  /* of the word or leaf to look at */
	__u32 next;  /* enum tree_next */
	__u32 level; /* of the word's node */
	__u32 levels;
	__u32 reserved;
};

static int tree_answer(struct rmem_call *call, const struct tree *tree, __u64 addr, __u64 value)
{
	struct tree_found *found = rmem_result(call, sizeof(*found));

	if (!found)
		return rmem_error(call);
	found->addr = cpu_to_le64(addr);
	found->value = cpu_to_le64(value);
	found->levels = cpu_to_le32(tree->levels);
	found->reserved = 0;
	return 0;
}

static int tree_go_on(struct rmem_call *call, struct tree *tree, __u64 addr, __u32 next)
{
	tree->addr = addr;
	tree->next = next;
	rmem_prefetch(call, addr);
	return RMEM_AGAIN;
}

static int tree_descend(struct rmem_call *call, struct tree *tree, __u64 node, __u32 level, __u64 key)
{
	__u32 child = key >> (TREE_BITS * level) & (TREE_CHILDREN - 1);

	tree->level = level;
	return tree_go_on(call, tree, node + child * sizeof(__le64), TREE_NEXT_WORD);
}

static int tree_word(struct rmem_call *call, struct tree *tree, __u64 key)
{
	const __le64 *slice = rmem_look(call, tree->addr, sizeof(*slice));
	__u64 word, tag;
	__u32 level;

	if (!slice)
		return rmem_error(call);
	word = offload_load(slice);
	tree->levels++;
	if (!word)
		return tree_answer(call, tree, 0, 0);
	if (word & TREE_LEAF) {
		if ((word & ~TREE_LEAF_MASK) != TREE_LEAF)
			return -EUCLEAN;
		return tree_go_on(call, tree, word & TREE_LEAF_MASK, TREE_NEXT_LEAF);
	}
	tag = word & ~TREE_NODE_MASK;
	level = (__u32)tag >> 1;
	/* Levels fall, so a search ends even where words form a circle. */
	if (level >= tree->level)
		return -EUCLEAN;
	return tree_descend(call, tree, word & TREE_NODE_MASK, level, key);
}

static int tree_leaf(struct rmem_call *call, struct tree *tree, __u64 key)
{
	const struct tree_leaf *leaf = rmem_look(call, tree->addr, sizeof(*leaf));

	if (!leaf)
		return rmem_error(call);
	tree->levels++;
	if (offload_load(&leaf->key) != key)
		return tree_answer(call, tree, 0, 0);
	return tree_answer(call, tree, tree->addr, offload_load(&leaf->value));
}

RMEM_STEP(tree_step)
{
	const struct tree_args *args = rmem_args(call, sizeof(*args));
	struct tree *tree = rmem_scratch(call, sizeof(*tree));
	__u64 key, root;

	if (rmem_function(call) != TREE_FIND)
		return -ENOSYS;
	if (!args || !tree || rmem_args_bytes(call) != sizeof(*args))
		return -EINVAL;
	key = le64_to_cpu(args->key);
	root = le64_to_cpu(args->root);
	if (tree->next == TREE_NEXT_WORD)
		return tree_word(call, tree, key);
	if (tree->next == TREE_NEXT_LEAF)
		return tree_leaf(call, tree, key);
	if (root & ~TREE_NODE_MASK)
		return -EINVAL;
	return tree_descend(call, tree, root, TREE_ROOT_LEVEL, key);
}

const struct rmem_offload_ops rmem_offload = {
	.version = RMEM_OFFLOAD_VERSION,
	.id = TREE_ID,
	.budget_us = RMEM_BUDGET_US_DEFAULT, /* 17 looks at memory */
	.name = "tree",
	.step = tree_step,
};

#ifdef __bpf__
RMEM_LICENSE("Dual MIT/GPL");
#endif

#ifdef __KERNEL__
RMEM_OFFLOAD_MODULE(rmem_offload, "tree");
MODULE_DESCRIPTION("A radix tree's search at a memory node");
MODULE_LICENSE("Dual MIT/GPL");
MODULE_VERSION(REMORA_VERSION);
#endif
