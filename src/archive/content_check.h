/*
 * Compares what is read of a file with the SHA-256 that the catalog has of its objects, while all of it is read in
 * order. An object of which the file has only a part cannot be compared, nor one that was stored without a SHA-256.
 */
#ifndef ECFS_ARCHIVE_CONTENT_CHECK_H
#define ECFS_ARCHIVE_CONTENT_CHECK_H

#include "archive/content.h"

typedef struct EcfsContentCheck EcfsContentCheck;

/** @content is borrowed until it is freed. */
EcfsContentCheck *ecfs_content_check_new (EcfsContent *content);
/** NULL is accepted. */
void ecfs_content_check_free (EcfsContentCheck *self);
G_DEFINE_AUTOPTR_CLEANUP_FUNC (EcfsContentCheck, ecfs_content_check_free)

/** The next bytes of the file, from @offset on; what is between two calls are holes. EBADMSG as below, of objects that
 * end before @offset. */
bool ecfs_content_check_take (EcfsContentCheck *self, uint64_t offset, const struct iovec *iov, int n_iov,
                              GError **error);
/** All was taken. EBADMSG: an object is not what was stored, which ecfs_content_check_bad () tells then. */
bool ecfs_content_check_end (EcfsContentCheck *self, GError **error);
/** The object that was found to be other than what was stored; NULL: none was. Borrowed. */
const EcfsObjectRow *ecfs_content_check_bad (const EcfsContentCheck *self);

/**
 * Finds the endpoints that return other bytes of the object than they got, as ecfs_archive_find_liars () does, and
 * flags them in @without (ECFS_ENDPOINTS_MAX flags), beside those flagged already: what is read without them has its
 * SHA-256. Where all endpoints return what they got none is flagged: what was read came from the cache, which has it no
 * more. EIO, and as there: that leads no further. Blocks.
 */
bool ecfs_content_leave_out_liars (EcfsArchive *archive, const EcfsObjectRow *object, bool *without, GError **error);

#endif
