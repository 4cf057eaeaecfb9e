#include "journal/journal_io.h"

#define SIZE_MOST    ((uint64_t) 2 * ECFS_JOURNAL_FILE_MAX + 4096)
#define STOP_LOOK_US 200000

GPtrArray *ecfs_journal_load (EcfsArchive *archive, EcfsEndpoint *endpoint, const char *name, uint64_t size,
                              uint64_t most_bytes, EcfsJournalFile *ret_file, GByteArray **ret_bytes, GError **error)
{
    char own_name[ECFS_JOURNAL_NAME_SIZE];
    if (size > SIZE_MOST) {
        (void) !(ecfs_fail (error, EBADMSG, "endpoint %s: %s is too large", ecfs_endpoint_name (endpoint), name));
        return NULL;
    }
    g_autoptr (GByteArray) file = g_byte_array_sized_new ((guint) size + 1);
    g_byte_array_set_size (file, (guint) size);
    const uint8_t *bytes = file->data;
    const EcfsRange range = {.size = size, .to = file->data};
    if (!ecfs_endpoint_read_wait (endpoint, name, &range, 1, error) ||
        !ecfs_journal_file_head (bytes, size, ret_file, error) ||
        (ret_file->raw_bytes > most_bytes &&
         !ecfs_fail (error, EBADMSG, "endpoint %s: %s has too many records", ecfs_endpoint_name (endpoint), name)))
        return NULL;
    g_autoptr (GPtrArray) rows = ecfs_journal_file_parse (bytes, size, ecfs_archive_keys (archive), ret_file, error);
    if (rows == NULL) {
        (void) !(ecfs_prefix (error, "endpoint %s: %s", ecfs_endpoint_name (endpoint), name));
        return NULL;
    }
    ecfs_journal_file_name (ret_file, own_name);
    if (g_str_equal (name, own_name) &&
        ecfs_uuid_equal (&ret_file->archive, ecfs_catalog_archive (ecfs_archive_catalog (archive)))) {
        if (ret_bytes != NULL)
            *ret_bytes = g_steal_pointer (&file);
        return g_steal_pointer (&rows);
    }
    (void) !(ecfs_fail (error, EBADMSG, "endpoint %s: %s is another file", ecfs_endpoint_name (endpoint), name));
    return NULL;
}

/* Storing */

typedef struct Upload {
    EcfsMutex lock;
    EcfsCond ended;
    bool done; /* guarded by lock, as the next */
    GError *error;
} Upload;

static void on_stored (void *user, const GError *error)
{
    Upload *self = user;
    ecfs_mutex_lock (&self->lock);
    self->done = true;
    self->error = error == NULL ? NULL : g_error_copy (error);
    ecfs_cond_signal (&self->ended);
    ecfs_mutex_unlock (&self->lock);
}

bool ecfs_journal_store (EcfsEndpoint *endpoint, const char *name, const GByteArray *bytes, const atomic_bool *stop,
                         GError **error)
{
    Upload upload = {.done = false};
    ecfs_mutex_init (&upload.lock);
    ecfs_cond_init (&upload.ended);
    EcfsStream *stream = ecfs_endpoint_write_bytes (endpoint, name, bytes->data, bytes->len, on_stored, &upload);
    ecfs_mutex_lock (&upload.lock);
    while (!upload.done) {
        (void) ecfs_cond_wait_until (&upload.ended, &upload.lock, ecfs_now_us () + STOP_LOOK_US); /* the loop looks */
        if (!upload.done && stop != NULL && atomic_load (stop))
            ecfs_stream_cancel (stream);
    }
    ecfs_mutex_unlock (&upload.lock);
    ecfs_stream_unref (stream);
    ecfs_cond_clear (&upload.ended);
    ecfs_mutex_clear (&upload.lock);
    if (upload.error == NULL)
        return true;
    g_propagate_error (error, upload.error);
    return false;
}
