/* SPDX-License-Identifier: GPL-2.0 OR MIT */
/*
 * Objects with versions, in a table in remote memory: the functions, their arguments and results,
 * and the memory that clients READ and WRITE. All fields are little-endian.
 *
 * A client allocates a region and has VERSIONS_FORMAT make a table of it. All objects of a table
 * have room for the same number of versions, and all versions the same room. The versions of an
 * object are numbered 1, 2, 3 ... in the order in which they were published.
 *
 * No function changes a published version. It changes if its object is deleted, if another table is
 * made there, or if a client WRITEs to its room. The client that staged the room MUST have all its
 * WRITEs to it answered before it calls VERSIONS_PUBLISH.
 *
 * A function fails (RMEM_FAILED) with ENXIO: there is no table at that address; ENOENT: there is no
 * such object, or it was deleted; EUCLEAN: the table's memory is damaged; EINVAL: arguments;
 * EFAULT: memory that isn't allocated; EACCES: the region permits no writing; ENOMEM: the node has
 * no page; EMSGSIZE: the client has no room for the result; or one that stands beside the function.
 */
#ifndef REMORA_OFFLOADS_VERSIONS_H
#define REMORA_OFFLOADS_VERSIONS_H

#include <linux/types.h>

#define VERSIONS_ID 6

#define VERSIONS_MAX 1024U	       /* of an object */
#define VERSIONS_BYTES_MAX (1U << 20)  /* of a version */
#define VERSIONS_OBJECTS_MAX (1U << 24)
#define VERSIONS_ALIGN 64U	       /* of the table */
#define VERSIONS_APPEND_BYTES_MAX 1008U /* of VERSIONS_APPEND; larger ones are staged */

enum versions_function {
	/*
	 * CALL: versions_format_args. Makes a table. EEXIST: there is one.
	 *
	 * A client that wants another one there writes 0 to versions_table.magic first, and MUST NOT
	 * write to next_generation. Then the earlier table's names find nothing in the new one.
	 * Its objects' memory is the new objects'. READs and WRITEs by addresses aren't checked: before
	 * that write, all clients MUST have ended those by the earlier table's addresses.
	 * The names also end with the region: one that is allocated anew gives the same names again.
	 */
	VERSIONS_FORMAT = 0,
	/* CALL: versions_args, object 0. Makes an object without versions. ENOSPC */
	VERSIONS_CREATE = 1,
	/*
	 * CALL: versions_args. The object's memory is the next one's. EBUSY: versions are staged, so a
	 * client might still write to that memory; VERSIONS_FORCE in `number` deletes all the same.
	 */
	VERSIONS_DELETE = 2,
	/*
	 * CALL: versions_object_args and data. Publishes the data as the object's next version. EMSGSIZE:
	 * the versions have less room; ENOSPC: the object has all its versions.
	 */
	VERSIONS_APPEND = 3,
	/* CALL: versions_args. Room for a version, which the client WRITEs. ENOSPC */
	VERSIONS_STAGE = 4,
	/*
	 * CALL: versions_args. Publishes the first `bytes` bytes of the room `number`, which the client
	 * wrote, as the next version. The room MUST be one that this client staged: the node doesn't know
	 * whose it is. EALREADY: it is published. EMSGSIZE: as of VERSIONS_APPEND
	 */
	VERSIONS_PUBLISH = 5,
	/* QUERY: versions_args; versions_found and the data. ENODATA: no such version */
	VERSIONS_READ = 6,
};

struct versions_format_args {
	__le64 table;	      /* address, a multiple of VERSIONS_ALIGN */
	__le64 bytes;	      /* of the memory there; VERSIONS_TABLE_BYTES() or more */
	__le32 objects;	      /* 1 to VERSIONS_OBJECTS_MAX */
	__le32 versions;      /* of an object: 1 to VERSIONS_MAX */
	__le32 version_bytes; /* room of a version: 1 to VERSIONS_BYTES_MAX */
	__le32 reserved;      /* 0 */
};

struct versions_object_args {
	__le64 table;
	__le64 object; /* as VERSIONS_CREATE told */
};

#define VERSIONS_FORCE 1U

/* Fields that a function doesn't name MUST be 0. */
struct versions_args {
	__le64 table;
	__le64 object;
	__le32 number; /* PUBLISH: the room's; READ: the version's, 0 for the latest; DELETE: flags */
	__le32 bytes;  /* PUBLISH: of the version */
};

/* Result of every CALL. */
struct versions_result {
	__le64 number; /* CREATE: the object; APPEND, PUBLISH: the version; STAGE: the room; else 0 */
	__le64 addr;   /* STAGE: where the client WRITEs the data; else 0 */
};

/*
 * The version's data follows if the result has room for all of it. Else the client READs `bytes`
 * bytes at addr, and then the object's generation: the data is whole if that is still the one in
 * the upper half of the object's name.
 */
struct versions_found {
	__le32 number; /* the version's */
	__le32 bytes;
	__le64 addr;
};

/* ---- memory --------------------------------------------------------------------------------- */

struct versions_table {
	__le64 magic;
	__le32 objects;
	__le32 versions;
	__le32 version_bytes;
	__le32 free;  /* index + 1 of the first object on the list of deleted ones; 0: none */
	__le32 fresh; /* index of the first object that this table never used */
	__le32 next_generation; /* of the next VERSIONS_CREATE; VERSIONS_FORMAT leaves it as it is */
	__le32 reserved[8];
};

/*
 * Objects lie behind the table, VERSIONS_OBJECT_BYTES() each. An object's name is its index, with
 * the generation in the upper half. Behind the header lie an entry for each version, in their order,
 * and then the rooms, VERSIONS_ROOM_BYTES() each.
 */
struct versions_object {
	__le64 count;	   /* published versions. They have entries */
	__le32 generation; /* odd: there is an object */
	__le32 taken;	   /* rooms that are staged or published */
	__le32 free_next;  /* as versions_table.free, of a deleted one */
	__le32 reserved[11];
};

/* An entry: the number of the version's room | its bytes << 32. */

struct versions_room {
	__le64 number; /* the version's; 0: staged */
	/* data */
};

#define VERSIONS_ROUND(bytes, to) (((bytes) + (to) - 1) & ~((__u64)(to) - 1))
#define VERSIONS_ROOM_BYTES(version_bytes) \
	(sizeof(struct versions_room) + VERSIONS_ROUND(version_bytes, 8))
#define VERSIONS_OBJECT_BYTES(versions, version_bytes)                           \
	VERSIONS_ROUND(sizeof(struct versions_object) +                          \
			       (versions) * (8 + VERSIONS_ROOM_BYTES(version_bytes)), \
		       VERSIONS_ALIGN)
#define VERSIONS_TABLE_BYTES(objects, versions, version_bytes) \
	(sizeof(struct versions_table) +                       \
	 (objects) * VERSIONS_OBJECT_BYTES(versions, version_bytes))

#endif
