#include "journal/journal_open.h"

#include "archive/keys.h"
#include "catalog/journal_file.h"

typedef struct Counting {
    EcfsOpenEnd end;
    uint64_t n_files;
} Counting;

static void on_listed (void *user, const EcfsListed *listed)
{
    Counting *self = user;
    EcfsJournalFile file;
    if (!ecfs_journal_file_name_parse (listed->name, &file))
        return;
    self->n_files += file.epoch < self->end.epoch || (file.epoch == self->end.epoch && file.last <= self->end.sequence);
}

/* Whether it is one of the archive's that was not given up. */
static bool is_ours (const EcfsArchiveEndpoint *endpoint)
{
    return endpoint->state != ECFS_ENDPOINT_REMOVED && endpoint->state != ECFS_ENDPOINT_FAILED;
}

bool ecfs_journal_note_open (EcfsArchive *archive, size_t position, GError **error)
{
    EcfsCatalog *catalog = ecfs_archive_catalog (archive);
    const EcfsArchiveEndpoint *endpoint = ecfs_archive_endpoint (archive, position);
    Counting counting = {.n_files = 0};
    uint64_t noted;
    if (!ecfs_keys_end (catalog, &counting.end, error) || !ecfs_keys_open (catalog, &endpoint->uuid, &noted, error))
        return false;
    if (counting.end.epoch == 0 || noted == 0)
        return true;
    return ecfs_endpoint_list_wait (endpoint->endpoint, ECFS_JOURNAL_DIRECTORY, on_listed, &counting, error) &&
           ecfs_endpoint_list_wait (endpoint->endpoint, ECFS_SNAPSHOT_DIRECTORY, on_listed, &counting, error) &&
           ecfs_keys_note_open (catalog, &endpoint->uuid, counting.n_files, error);
}

bool ecfs_journal_open_files (EcfsArchive *archive, uint64_t *ret_n_files, unsigned *ret_n_unknown, GError **error)
{
    EcfsCatalog *catalog = ecfs_archive_catalog (archive);
    uint64_t n_files = 0;
    unsigned n_unknown = 0;
    for (size_t i = 0; i < ecfs_archive_n_endpoints (archive); i++) {
        const EcfsArchiveEndpoint *endpoint = ecfs_archive_endpoint (archive, i);
        uint64_t n;
        if (!is_ours (endpoint))
            continue;
        if (!ecfs_keys_open (catalog, &endpoint->uuid, &n, error))
            return false;
        n_unknown += n == G_MAXUINT64;
        n_files += n == G_MAXUINT64 ? 0 : n;
    }
    *ret_n_files = n_files;
    *ret_n_unknown = n_unknown;
    return true;
}

bool ecfs_journal_expect_open (EcfsArchive *archive, GError **error)
{
    for (size_t i = 0; i < ecfs_archive_n_endpoints (archive); i++) {
        const EcfsArchiveEndpoint *endpoint = ecfs_archive_endpoint (archive, i);
        if (is_ours (endpoint) &&
            !ecfs_keys_note_open (ecfs_archive_catalog (archive), &endpoint->uuid, G_MAXUINT64, error))
            return false;
    }
    return true;
}
