/* SPDX-License-Identifier: GPL-2.0 OR MIT */
/*
 * A radix tree in remote memory: its layout, which clients write, and the function that searches
 * it. All fields are little-endian.
 *
 *   root, level 15 ── word ──> node, level 9 ── word ──> leaf: key, value
 *
 * A node has 16 words, one for each value of 4 bits of the key. Its level, 0 to 15, tells which: a
 * search goes on at the word number key >> 4 * level & 15. A node with a single child is left out,
 * so a level is lower than the parent's by 1 or more, and only the leaf tells the whole key. A word
 * is 0 for no child, or the child's address with a tag in its low bits:
 *
 *   node   address (a multiple of 128) | level << 1
 *   leaf   address (a multiple of 16) | TREE_LEAF
 *
 * A writer MUST have the write of a node or leaf answered before it sends the write of the word that
 * leads there. It MUST write that word by one aligned access of 8 bytes (or an atomic one, if there
 * are more writers). Then a search beside it finds the tree as it was before the word or as it is
 * after it.
 *
 * A node or leaf that was unlinked MUST NOT be written again before all of these:
 *   - the write of the word that unlinked it was answered;
 *   - a FENCE that was sent after that answer was answered, so no call looks at it any more;
 *   - each client that searches by READs has ended the searches that it began before.
 */
#ifndef REMORA_OFFLOADS_TREE_H
#define REMORA_OFFLOADS_TREE_H

#include <linux/types.h>

#define TREE_ID 4

#define TREE_CHILDREN 16U
#define TREE_BITS 4U	     /* of the key, that a node looks at */
#define TREE_ROOT_LEVEL 15U  /* always: the root stays where it is */
#define TREE_NODE_BYTES 128U /* and alignment */
#define TREE_LEAF_BYTES 16U  /* and alignment */
#define TREE_LEAF 1U

struct tree_node {
	__le64 word[TREE_CHILDREN];
};

struct tree_leaf {
	__le64 key;
	__le64 value; /* the client's: a number, or an address */
};

enum tree_function {
	/*
	 * QUERY: tree_args, tree_found. Fails (RMEM_FAILED) with EINVAL: arguments; EUCLEAN: a word
	 * that is no child of its node; EFAULT: no such memory; EMSGSIZE: the client has no room for
	 * the result.
	 */
	TREE_FIND = 0,
};

struct tree_args {
	__le64 root; /* its address, a multiple of TREE_NODE_BYTES */
	__le64 key;
};

struct tree_found {
	__le64 addr;   /* the key's leaf; 0: the tree has no such key */
	__le64 value;  /* the leaf's */
	__le32 levels; /* words and leaves that the search looked at, at most 17 */
	__le32 reserved;
};

#endif
