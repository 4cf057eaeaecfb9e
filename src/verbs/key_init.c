/*
 * A key for an archive that was made without one. What is durable when:
 *
 *   key file       in the archive directory; the archive has no key, and whoever writes goes on without
 *   shares         at the endpoints, read back, in so many zones that they outlive any loss; likewise
 *   begun          in the catalog: nobody writes but this, run again
 *   snapshot       at the endpoints, sealed and read back: who recovers has the key if it is whole, else all that was
 *                  there before, and no key
 *   id             in the catalog: the archive has its key, and what is stored from now on is stored under it
 *   second one     with which all journal files are superfluous that are open, and removed
 *
 * Each can be done again.
 */
#include "archive/common.h"
#include "archive/init_key.h"
#include "archive/keys.h"
#include "catalog/marks.h"
#include "journal/journal_open.h"
#include "journal/journal_watch.h"
#include "verbs/key.h"

#include <sys/stat.h>

#include <string.h>

static bool always (void *user)
{
    (void) user;
    return true;
}

/* Phases */

/* What is asked for. */
typedef struct Giving {
    const EcfsKeepingRead *keeping;
    const char *copy; /* of the file with the key, somewhere else; NULL: none is named */
} Giving;

/* A key that is in this directory alone would take all with it that is stored under it: even the catalog. */
static bool check_copy (EcfsArchive *archive, const EcfsKeyRing *keys, const char *copy, GError **error)
{
    g_autofree char *path = g_build_filename (ecfs_archive_directory (archive), ECFS_KEYS_NAME, NULL);
    if (copy == NULL)
        return ecfs_fail (error, ENOKEY,
                          "the key is in %s: copy that file to another place, as all would be lost with it, and run "
                          "this again with --copy and the path of the copy",
                          path);
    struct stat own, other;
    g_autoptr (EcfsKeyRing) there = ecfs_keys_read (copy, error);
    if (there == NULL)
        return false;
    if (!ecfs_uuid_equal (ecfs_key_ring_active (there), ecfs_key_ring_active (keys)))
        return ecfs_fail (error, ENOKEY, "%s is no copy of %s", copy, path);
    return stat (path, &own) != 0 || stat (copy, &other) != 0 || own.st_dev != other.st_dev ||
           own.st_ino != other.st_ino || ecfs_fail (error, ENOKEY, "%s is the file itself, and no copy", copy);
}

/* The key is on the disk, and what endpoints have of it is there. Run again, what opens it is what is given now. */
static bool store_key (EcfsArchive *archive, const Giving *giving, GError **error)
{
    EcfsKeyLosses losses;
    const EcfsKeepingRead *read = giving->keeping;
    EcfsKeyKeeping keeping = {.how = read->how, .opener = &read->opener};
    g_autoptr (EcfsKeyRing) keys = NULL;
    g_autoptr (EcfsKeyShares) shares = NULL;
    if (!ecfs_key_find_losses (archive, &losses, error) ||
        (ecfs_keeping_is_shared (read->how) && !ecfs_key_find_threshold (archive, &keeping.threshold, error)) ||
        !ecfs_archive_make_key (ecfs_archive_directory (archive), ecfs_archive_catalog (archive), &keeping, &keys,
                                &shares, error))
        return false;
    return shares == NULL ? check_copy (archive, keys, giving->copy, error)
                          : ecfs_key_put_shares (archive, shares, &losses, error);
}

/* Reads the newest snapshot back wherever it should be. */
static bool check_snapshot (EcfsArchive *archive, GError **error)
{
    unsigned n_whole = 0;
    for (size_t i = 0; i < ecfs_archive_n_endpoints (archive); i++) {
        const EcfsArchiveEndpoint *endpoint = ecfs_archive_endpoint (archive, i);
        EcfsJournalSight sight = {.has_snapshot = false};
        if (ecfs_archive_has_journal (endpoint) && !ecfs_endpoint_is_down (endpoint->endpoint) &&
            ecfs_journal_look (archive, i, true, &sight, NULL)) /* who cannot be asked does not count */
            n_whole += sight.has_snapshot;
        g_free (sight.missing);
    }
    unsigned n_copies = ecfs_archive_journal_copies (archive);
    return n_whole >= n_copies ||
           ecfs_fail (error, EIO, "the sealed catalog reads as it was written at %u endpoints, and %u must have it",
                      n_whole, n_copies);
}

/* From here on nobody else writes. */
static bool note_begun (EcfsArchive *archive, GError **error)
{
    EcfsCatalog *catalog = ecfs_archive_catalog (archive);
    const EcfsKeyShares *shares = ecfs_archive_key_shares (archive);
    const EcfsOpenEnd end = {.epoch = ecfs_catalog_epoch (catalog), .sequence = ecfs_catalog_sequence (catalog)};
    return ecfs_keys_note_end (catalog, &end, error) && ecfs_journal_expect_open (archive, error) &&
           (shares == NULL || ecfs_archive_tell_key (archive, shares, error)) &&
           ecfs_keys_begin (catalog, ecfs_archive_keys (archive), error) && ecfs_catalog_barrier (catalog, error);
}

/* The past of before a key cannot be believed any more. */
static bool check_marks (EcfsCatalog *catalog, GError **error)
{
    g_autoptr (GArray) marks = ecfs_catalog_marks (catalog, error);
    return marks != NULL &&
           (marks->len == 0 || ecfs_fail (error, EBUSY,
                                          "a key ends the past of before it, and the mark %s with it: remove that "
                                          "first ('ecfs mark --remove')",
                                          g_array_index (marks, EcfsMark, 0).name));
}

/* With the key, and without services: what is stored first under it is the snapshot. */
static bool begin (EcfsArchive *archive, const Giving *giving, GError **error)
{
    EcfsCatalog *catalog = ecfs_archive_catalog (archive);
    if (!check_marks (catalog, error))
        return false;
    EcfsKeysState state;
    if (ecfs_archive_keys (archive) == NULL)
        return ecfs_fail (error, ENOKEY, "%s: the file " ECFS_KEYS_NAME " is gone: run this again",
                          ecfs_archive_directory (archive));
    if (!ecfs_archive_begin (archive, error) || !ecfs_keys_state (catalog, &state, error) ||
        (state == ECFS_KEYS_BEGUN ? !store_key (archive, giving, error) : !note_begun (archive, error)))
        return false;
    ecfs_archive_await_session (archive);
    return ecfs_journal_renew (archive, error) && check_snapshot (archive, error) &&
           ecfs_keys_keep_id (catalog, ecfs_archive_keys (archive), error) && ecfs_catalog_barrier (catalog, error);
}

/* The endpoints get markers of a session that has the key: each opening for writing writes them anew. */
static void renew_markers (EcfsArchive *archive)
{
    ecfs_archive_await_session (archive);
}

/* What lies open of the journal at endpoints goes, as far as these can be reached. */
static bool close_journal (EcfsArchive *archive, GError **error)
{
    g_autoptr (GError) why = NULL;
    renew_markers (archive);
    if (!ecfs_journal_renew (archive, error) || !ecfs_archive_store_journal (archive, always, NULL, error) ||
        !ecfs_journal_tidy (archive, error))
        return false;
    for (size_t i = 0; i < ecfs_archive_n_endpoints (archive); i++) {
        const EcfsArchiveEndpoint *endpoint = ecfs_archive_endpoint (archive, i);
        if (!ecfs_archive_endpoint_counts (endpoint) || endpoint->endpoint == NULL)
            continue;
        g_clear_error (&why);
        if (!ecfs_journal_note_open (archive, i, &why))
            g_message ("%s: open files of the journal may stay there until it can be reached: %s",
                       ecfs_archive_directory (archive), why->message);
    }
    return true;
}

/* Phases: each opens the archive anew, the second with a key that is not in use yet, the third with one that is. */

static bool prepare_archive (const char *directory, const Giving *giving, GError **error)
{
    g_autoptr (EcfsArchive) archive = ecfs_archive_open (directory, 0, error);
    return archive != NULL && check_marks (ecfs_archive_catalog (archive), error) &&
           ecfs_archive_start (archive, error) && store_key (archive, giving, error) &&
           ecfs_archive_store_journal (archive, always, NULL, error);
}

static bool begin_archive (const char *directory, const Giving *giving, GError **error)
{
    g_autoptr (EcfsArchive) archive = ecfs_archive_open (directory, ECFS_ARCHIVE_GETS_KEY, error);
    return archive != NULL && begin (archive, giving, error);
}

static bool close_archive (const char *directory, GError **error)
{
    g_autoptr (EcfsArchive) archive = ecfs_archive_open (directory, 0, error);
    return archive != NULL && ecfs_archive_start (archive, error) && close_journal (archive, error);
}

/* How far it has come, by whoever began it. */
static bool look (const char *directory, EcfsKeysState *ret_state, bool *ret_is_open, GError **error)
{
    uint64_t n_files;
    unsigned n_unknown;
    g_autoptr (GError) busy = NULL;
    g_autoptr (EcfsArchive) archive = ecfs_archive_open (directory, ECFS_ARCHIVE_GETS_KEY, &busy);
    if (archive == NULL && busy->code == EBUSY)
        return ecfs_fail (error, EBUSY, "%s; an archive gets a key while it is not mounted", busy->message);
    if (archive == NULL) {
        g_propagate_error (error, g_steal_pointer (&busy));
        return false;
    }
    if (!ecfs_keys_state (ecfs_archive_catalog (archive), ret_state, error) ||
        !ecfs_journal_open_files (archive, &n_files, &n_unknown, error))
        return false;
    *ret_is_open = n_files > 0 || n_unknown > 0;
    return true;
}

static bool give_key (const char *directory, const Giving *giving, GError **error)
{
    const EcfsKeepingRead *keeping = giving->keeping;
    EcfsKeysState state = ECFS_KEYS_NONE;
    bool is_open = false;
    if (keeping->how == ECFS_KEEPING_NONE)
        return ecfs_fail (error, EINVAL, "an archive that has no key stays as it is: say how a key is to be kept");
    if (!look (directory, &state, &is_open, error))
        return false;
    if (state == ECFS_KEYS_ROTATING)
        return ecfs_fail (error, EEXIST, "%s has a key, and 'ecfs key rotate' was interrupted: run that again",
                          directory);
    bool goes_on = keeping->how == ECFS_KEEPING_SPLIT || keeping->how == ECFS_KEEPING_FILE;
    if (state == ECFS_KEYS_ACTIVE && (!is_open || !goes_on))
        return ecfs_fail (error, EEXIST, "%s has a key already: 'ecfs key add' adds a way to open it", directory);
    if (state == ECFS_KEYS_NONE && !prepare_archive (directory, giving, error))
        return ecfs_prefix (error, "%s has no key still", directory);
    if (state != ECFS_KEYS_ACTIVE && !begin_archive (directory, giving, error))
        return ecfs_prefix (error, "%s has no key yet, run this again", directory);
    return close_archive (directory, error) ||
           ecfs_prefix (error, "%s has its key; run this again, as older files of its journal lie open still",
                        directory);
}

bool ecfs_key_init (const char *directory, const EcfsKeyWay *key, const char *copy, GError **error)
{
    EcfsKeepingRead keeping;
    if (!ecfs_keeping_read (key, &keeping, error))
        return false;
    const Giving giving = {.keeping = &keeping, .copy = copy};
    bool given = give_key (directory, &giving, error);
    ecfs_keeping_forget (&keeping);
    return given;
}
