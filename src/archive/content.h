/*
 * The committed content of one file at one moment, for reading: its extents and objects, and the readers behind them.
 * Content that is replaced or deleted meanwhile stays readable through it: it pins the objects against deletion in this
 * process.
 *
 * Reads are asynchronous and may be begun by any number of threads at once. Sequential reading is noticed and read
 * ahead.
 */
#ifndef ECFS_ARCHIVE_CONTENT_H
#define ECFS_ARCHIVE_CONTENT_H

#include "archive/archive.h"
#include "object/reader.h"

#include <sys/uio.h>

typedef struct EcfsContent EcfsContent;

/** Opens what the catalog says of @ino now. Never waits for an endpoint. Returns a reference for ecfs_content_unref ().
 */
EcfsContent *ecfs_content_open (EcfsArchive *archive, uint64_t ino, GError **error);
/** Opens one object, from its first to its last byte, as the catalog has it now. */
EcfsContent *ecfs_content_open_object (EcfsArchive *archive, int64_t object, GError **error);
/** Before the first read: nothing is read from the endpoints that @without flags by position; borrowed. */
void ecfs_content_leave_out (EcfsContent *self, const bool *without);
/** Before the first read: all of it will be read, in order. */
void ecfs_content_expect_all (EcfsContent *self);
/* What reading has to do with the archive's cache, if it has one. */
typedef enum EcfsCaching {
    ECFS_CACHING_NONE,  /* all comes from endpoints: who looks at what they have, and who leaves some of them out */
    ECFS_CACHING_READS, /* what is there already is taken from there: who reads a file to change it */
    ECFS_CACHING_FILLS, /* and what is not is put there: who reads for a user */
} EcfsCaching;
/** Before the first read. NONE without it. */
void ecfs_content_set_caching (EcfsContent *self, EcfsCaching caching);
/** Before the first read: nothing of it comes from what readers of other contents have in memory. */
void ecfs_content_share_nothing (EcfsContent *self);
/** Before the first read: damaged stripes that its reads meet, however late, are not noted for repair. */
void ecfs_content_pass_over_damage (EcfsContent *self);
EcfsContent *ecfs_content_ref (EcfsContent *self);
/** NULL is accepted. Reads under way keep their own reference. */
void ecfs_content_unref (EcfsContent *self);
G_DEFINE_AUTOPTR_CLEANUP_FUNC (EcfsContent, ecfs_content_unref)

/**
 * False when one of its objects has other stripes meanwhile, since it was repaired or stored in full: what is opened
 * anew reads those. Any thread; may read the catalog.
 */
bool ecfs_content_is_current (EcfsContent *self);

uint64_t ecfs_content_size (const EcfsContent *self);

/** Object and stripes behind extent @index, for `info`; NULL past the last. Borrowed from self. */
const EcfsObjectRow *ecfs_content_object (const EcfsContent *self, size_t index);
const GArray *ecfs_content_extents (const EcfsContent *self); /* of EcfsExtent; `object` indexes the objects */

/**
 * Called exactly once per read, from any thread, possibly before ecfs_content_read () returned. Must not block. @iov
 * holds the bytes (fewer than asked for at the end of the file only), lent for the call. On errors @error is set: EIO
 * with the endpoints that failed when the bytes cannot be had now.
 */
typedef void (*EcfsContentDone) (void *user, const struct iovec *iov, int n_iov, const GError *error);

void ecfs_content_read (EcfsContent *self, uint64_t offset, size_t size, EcfsContentDone done, void *user);

/* What ecfs_content_borrow () lent. */
typedef struct EcfsBorrowed {
    struct iovec *iov; /* the borrower may change the entries, not the bytes */
    int n_iov;
    size_t size;    /* of all */
    EcfsLoan *loan; /* or */
    uint8_t *own;   /* from several extents, gathered */
    struct iovec own_iov;
} EcfsBorrowed;

/**
 * Blocking form for who passes bytes on: they are not copied where one extent has them all. Fewer than @size at the end
 * of the file only. Give them back before the next read.
 */
bool ecfs_content_borrow (EcfsContent *self, uint64_t offset, size_t size, EcfsBorrowed *ret, GError **error);
void ecfs_content_give_back (EcfsBorrowed *borrowed);

/** Blocking form for verbs and for copying up: fills @to, *ret_size is less than @size at the end of the file only. */
bool ecfs_content_read_wait (EcfsContent *self, uint64_t offset, size_t size, void *to, size_t *ret_size,
                             GError **error);

#endif
