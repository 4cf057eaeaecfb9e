#include "journal/elsewhere.h"

#include "archive/common.h"
#include "archive/lineage.h"
#include "journal/sender.h"

#define LOOK_US     (G_USEC_PER_SEC / 10)
#define PATIENCE_US (300 * G_USEC_PER_SEC) /* of who cannot tell that it has given up */

static bool fail_trouble (EcfsArchive *archive, const char *trouble, GError **error)
{
    g_autofree char *leader = ecfs_catalog_leader (ecfs_archive_catalog (archive));
    return ecfs_fail (error, EIO, "%s sends the journal for this mount, and says: %s",
                      leader == NULL ? "another mount" : leader, trouble);
}

/* Nobody who leads will store what an old copy has. */
static bool check_newest (EcfsArchive *archive, GError **error)
{
    EcfsLineage *lineage = ecfs_archive_lineage (archive);
    const char *old = ecfs_archive_old_copy (archive);
    g_autofree char *trouble = old != NULL                                          ? g_strdup (old)
                               : lineage != NULL && ecfs_lineage_is_stale (lineage) ? ecfs_lineage_trouble (lineage)
                                                                                    : NULL;
    return trouble == NULL || ecfs_fail (error, ESTALE, "%s", trouble);
}

bool ecfs_journal_store_elsewhere (EcfsArchive *archive, bool (*goes_on) (void *user), void *user, GError **error)
{
    EcfsCatalog *catalog = ecfs_archive_catalog (archive);
    const uint64_t sequence = ecfs_catalog_sequence (catalog);
    const int64_t until_us = ecfs_now_us () + PATIENCE_US;
    uint64_t first_try = UINT64_MAX;
    if (!ecfs_catalog_barrier (catalog, error))
        return false;
    for (;;) {
        EcfsLeaderAnswer answer;
        if (ecfs_archive_service (archive, ECFS_SERVICE_JOURNAL) != NULL)
            return ecfs_archive_store_journal (archive, goes_on, user, error);
        if (!check_newest (archive, error) || !ecfs_catalog_ask_leader (catalog, sequence, &answer, error))
            return false;
        g_autofree char *trouble = answer.trouble;
        if (answer.stored >= sequence)
            return true;
        first_try = MIN (first_try, answer.tries);
        if (trouble != NULL && answer.tries >= first_try + 2) /* the first may have begun before this was asked */
            return fail_trouble (archive, trouble, error);
        if (goes_on != NULL && !goes_on (user))
            return ecfs_fail (error, ECANCELED, "the mount ends");
        if (goes_on == NULL && ecfs_now_us () > until_us)
            return ecfs_fail (error, ETIMEDOUT, "no other mount that leads has said that the journal is stored");
        g_usleep (LOOK_US);
    }
}
