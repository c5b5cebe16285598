/* SPDX-License-Identifier: GPL-2.0 */
/* 6.7: a shrinker is allocated and carries a pointer. Before, it is part of the caller's struct. */
#ifndef REMORA_COMPAT_SHRINKER_H
#define REMORA_COMPAT_SHRINKER_H

#include <linux/shrinker.h>
#include <linux/slab.h>
#include <linux/version.h>

typedef unsigned long (*compat_shrinker_fn)(struct shrinker *shrinker, struct shrink_control *sc);

#if LINUX_VERSION_CODE >= KERNEL_VERSION(6, 7, 0)

static inline void *compat_shrinker_private(struct shrinker *shrinker)
{
	return shrinker->private_data;
}

/* NULL: no memory. */
static inline struct shrinker *compat_shrinker_make(const char *name, void *private,
						    compat_shrinker_fn count,
						    compat_shrinker_fn scan)
{
	struct shrinker *shrinker = shrinker_alloc(0, "%s", name);

	if (!shrinker)
		return NULL;
	shrinker->count_objects = count;
	shrinker->scan_objects = scan;
	shrinker->private_data = private;
	shrinker_register(shrinker);
	return shrinker;
}

/* Waits for calls under way. shrinker: can be NULL. */
static inline void compat_shrinker_free(struct shrinker *shrinker)
{
	shrinker_free(shrinker);
}

#else

struct compat_shrinker {
	struct shrinker shrinker;
	void *private;
};

static inline void *compat_shrinker_private(struct shrinker *shrinker)
{
	return container_of(shrinker, struct compat_shrinker, shrinker)->private;
}

static inline struct shrinker *compat_shrinker_make(const char *name, void *private,
						    compat_shrinker_fn count,
						    compat_shrinker_fn scan)
{
	struct compat_shrinker *made = kzalloc(sizeof(*made), GFP_KERNEL);

	if (!made)
		return NULL;
	made->shrinker.count_objects = count;
	made->shrinker.scan_objects = scan;
	made->shrinker.seeks = DEFAULT_SEEKS;
	made->private = private;
	if (!register_shrinker(&made->shrinker, "%s", name))
		return &made->shrinker;
	kfree(made);
	return NULL;
}

static inline void compat_shrinker_free(struct shrinker *shrinker)
{
	if (!shrinker)
		return;
	unregister_shrinker(shrinker);
	kfree(container_of(shrinker, struct compat_shrinker, shrinker));
}

#endif

#endif
