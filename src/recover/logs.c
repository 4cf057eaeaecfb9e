/*
 * Logs: records of small files that no journal tells of. The catalog knows a log up to where the journal ends, or does
 * not know it: what is behind that counts by itself, as one that enough copies have.
 */
#include "object/log.h"
#include "recover/recover_priv.h"
#include "util/bytes.h"
#include "util/sha256.h"

typedef struct Reading {
    EcfsRecoverTold *told;
    EcfsSha256 *sum;
} Reading;

/* Copies that have other bytes tell of other content. */
static EcfsUuid content_of (const EcfsUuid *log, uint64_t offset, const uint8_t *sha256, EcfsSha256 *sum)
{
    EcfsUuid content;
    uint8_t place[8], digest[ECFS_SHA256_SIZE];
    ecfs_put_le (place, offset, sizeof place);
    ecfs_sha256_update (sum, log->bytes, sizeof log->bytes);
    ecfs_sha256_update (sum, place, sizeof place);
    ecfs_sha256_update (sum, sha256, ECFS_SHA256_SIZE);
    ecfs_sha256_end (sum, digest);
    memcpy (content.bytes, digest, sizeof content.bytes);
    return content;
}

static void on_record (void *user, const EcfsLogRecord *logged, uint64_t offset)
{
    const Reading *self = user;
    EcfsRecoverTold *told = self->told;
    if (offset < told->known_end)
        return;
    const EcfsFileRange range = {.length = logged->content_bytes,
                                 .object_offset = offset + ecfs_log_content_offset (logged)};
    EcfsFileRecord *record = g_new (EcfsFileRecord, 1);
    *record = (EcfsFileRecord){.ino = logged->ino,
                               .generation = logged->sequence,
                               .file_size = logged->content_bytes,
                               .mode = logged->mode,
                               .uid = logged->uid,
                               .gid = logged->gid,
                               .mtime_ns = logged->mtime_ns,
                               .path = g_strndup (logged->path, logged->path_bytes),
                               .ranges = g_array_new (FALSE, FALSE, sizeof range),
                               .n_objects = 1,
                               .has_sha256 = true};
    ecfs_sha256_update (self->sum, logged->content, logged->content_bytes);
    ecfs_sha256_end (self->sum, record->sha256);
    record->content = content_of (&told->header.object, offset, record->sha256, self->sum);
    g_array_append_val (record->ranges, range);
    g_ptr_array_add (told->footer.records, record);
}

bool ecfs_recover_read_log (EcfsRecoverTold *self, GError **error)
{
    uint64_t most = ecfs_log_stripe_bytes (self->header.header_bytes, &self->header.seal, ECFS_LOG_MAX_BYTES);
    size_t size = (size_t) MIN (self->piece->size, most);
    g_autofree uint8_t *bytes = NULL;
    if (!ecfs_recover_read_range (self, 0, size, &bytes, error))
        return false;
    g_autoptr (EcfsSha256) sum = ecfs_sha256_new ();
    Reading reading = {.told = self, .sum = sum};
    self->footer = (EcfsStripeFooter){.records = g_ptr_array_new_with_free_func (ecfs_file_record_free)};
    self->footer.size = ecfs_log_each_record (bytes, size, &self->header, self->keys, on_record, &reading);
    return true;
}

void ecfs_recover_set_log_ends (EcfsRecovering *self, EcfsObjectRow *row, const EcfsRecoverTold *const *copies,
                                size_t n_copies)
{
    for (size_t i = 0; i < n_copies; i++)
        row->size = MAX (row->size, copies[i]->footer.size);
    for (size_t i = 0; i < n_copies; i++) {
        const EcfsRecoverPiece *piece = copies[i]->piece;
        const uint64_t end = MAX (copies[i]->footer.size, copies[i]->known_end);
        for (guint j = 0; j < row->stripes->len; j++) {
            EcfsStripeRow *stripe = &g_array_index (row->stripes, EcfsStripeRow, j);
            if (stripe->index == piece->index && stripe->instance == piece->instance &&
                stripe->endpoint == self->places[piece->position].id && stripe->size == 0 && end < row->size)
                stripe->size = MAX (end, 1);
        }
    }
}
