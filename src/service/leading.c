#include "service/leading.h"

#include "archive/common.h"
#include "journal/sender.h"
#include "staging/staged.h"
#include "util/ticker.h"

#define LOOK_US       (G_USEC_PER_SEC / 4) /* whether somebody waits for the journal */
#define AROUND_US     (3 * G_USEC_PER_SEC)
#define TIDY_US       (10 * G_USEC_PER_SEC)
#define BESIDE_US     (60 * G_USEC_PER_SEC) /* who leads asks more often */
#define ORPHANS_US    (600 * G_USEC_PER_SEC)
#define OPEN_NS       (INT64_C (3600) * 1000000000) /* for so long a file without a name may be open elsewhere */
#define LEAD_AGAIN_US (10 * G_USEC_PER_SEC)
#define LEAD_TRIES    3 /* then another may */
#define AGAIN_US      (2 * G_USEC_PER_SEC)

struct EcfsLeading {
    EcfsArchive *archive; /* immutable, as the next two */
    bool is_mount;
    EcfsTicker *ticker;
    /* The ticker's: when things were done last, and what others were told. */
    int64_t around_us, tidy_us, orphans_us, tried_us, swept_us, beside_us;
    int64_t again_us; /* storing failed: not before then */
    bool told;        /* that leading fails */
    unsigned n_tries; /* to lead */
    GHashTable *rows; /* of staging, that nothing is known of */
};

static bool is_due (int64_t *last_us, int64_t every_us)
{
    int64_t now_us = ecfs_now_us ();
    if (*last_us != 0 && now_us - *last_us < every_us)
        return false;
    *last_us = now_us;
    return true;
}

static bool goes_on (void *user)
{
    const EcfsLeading *self = user;
    return !ecfs_archive_is_stopping (self->archive);
}

/* The catalog may have come to lead; what that means for the archive may take several tries. */
static void take_the_lead (EcfsLeading *self)
{
    g_autoptr (GError) error = NULL;
    if (ecfs_archive_leads (self->archive) || !ecfs_catalog_leads (ecfs_archive_catalog (self->archive)) ||
        !is_due (&self->tried_us, LEAD_AGAIN_US))
        return;
    if (ecfs_archive_lead (self->archive, self->is_mount, &error)) {
        g_log (
            G_LOG_DOMAIN, self->is_mount ? G_LOG_LEVEL_MESSAGE : G_LOG_LEVEL_INFO,
            "%s: this mount leads now: it sends the journal, deletes and repairs for all that have the archive mounted",
            ecfs_archive_directory (self->archive));
        return;
    }
    if (!self->told)
        g_warning ("this mount is to lead, and cannot yet: %s", error->message);
    self->told = true;
    g_autoptr (GError) why = NULL;
    if (++self->n_tries % LEAD_TRIES == 0 && !ecfs_catalog_resign (ecfs_archive_catalog (self->archive), &why))
        g_info ("%s", why->message); /* tried again, or another has taken it */
}

/* What members wait for is stored, or they are told why not. */
static void serve_members (EcfsLeading *self)
{
    uint64_t wanted = 0;
    g_autoptr (GError) error = NULL;
    EcfsCatalog *catalog = ecfs_archive_catalog (self->archive);
    if (ecfs_now_us () < self->again_us || !ecfs_catalog_wanted (catalog, &wanted, &error) || wanted == 0)
        return; /* the catalog tells what is wrong with it */
    uint64_t sequence = ecfs_catalog_sequence (catalog);
    bool stored = ecfs_archive_look_for_codes (self->archive, &error) && /* for as many copies as theirs need */
                  ecfs_archive_store_journal (self->archive, goes_on, self, &error);
    if (ecfs_archive_is_stopping (self->archive))
        return; /* whoever leads next answers */
    g_autoptr (GError) why = NULL;
    self->again_us = stored ? 0 : ecfs_now_us () + AGAIN_US;
    if (!ecfs_catalog_answer (catalog, sequence, stored ? NULL : error->message, &why))
        g_info ("%s", why->message); /* they ask again */
}

static void tidy (EcfsLeading *self)
{
    g_autoptr (GError) error = NULL;
    EcfsCatalog *catalog = ecfs_archive_catalog (self->archive);
    bool good = !is_due (&self->tidy_us, TIDY_US) ||
                (ecfs_archive_look_for_codes (self->archive, &error) && ecfs_catalog_note_age (catalog, &error) &&
                 ecfs_catalog_intents_abort_dead (catalog, &error));
    if (good && is_due (&self->orphans_us, ORPHANS_US))
        good = ecfs_catalog_drop_orphans (catalog, g_get_real_time () * 1000 - OPEN_NS, &error);
    if (!good)
        g_info ("%s", error->message); /* tried again; the catalog tells what is wrong with it */
}

/* After a failover: before anybody here changes anything. */
static void look_for_losses (EcfsArchive *archive)
{
    g_autoptr (GError) lost = NULL;
    EcfsCatalog *catalog = ecfs_archive_catalog (archive);
    if (!ecfs_catalog_is_doubtful (catalog))
        return;
    g_message ("%s: its catalog is in another database than before: the endpoints are asked whether it lacks something",
               ecfs_archive_directory (archive));
    bool newest = ecfs_archive_check_beside (archive, &lost);
    ecfs_catalog_end_doubt (catalog, lost);
    if (newest)
        g_message ("%s: it lacks nothing that they know of", ecfs_archive_directory (archive));
    else
        g_critical ("%s; changes are refused from now on", lost->message);
}

static void look (void *user)
{
    EcfsLeading *self = user;
    g_autoptr (GError) error = NULL;
    look_for_losses (self->archive);
    if (is_due (&self->around_us, AROUND_US) &&
        (!ecfs_catalog_look_around (ecfs_archive_catalog (self->archive), &error) ||
         (!ecfs_archive_leads (self->archive) && !ecfs_archive_follow_endpoints (self->archive, &error))))
        g_info ("%s", error->message); /* whoever changes something is told */
    g_clear_error (&error);
    if (is_due (&self->swept_us, TIDY_US) && !ecfs_staged_sweep (self->archive, self->rows, &error))
        g_info ("%s", error->message); /* likewise */
    take_the_lead (self);
    if (!ecfs_archive_leads (self->archive)) {
        if (is_due (&self->beside_us, BESIDE_US))
            ecfs_archive_ask_beside (self->archive);
        return;
    }
    serve_members (self);
    tidy (self);
}

EcfsLeading *ecfs_leading_start (EcfsArchive *archive, bool is_mount)
{
    EcfsLeading *self = g_new0 (EcfsLeading, 1);
    self->archive = archive;
    self->is_mount = is_mount;
    self->rows = g_hash_table_new (NULL, NULL);
    self->ticker = ecfs_ticker_start (LOOK_US, look, self);
    return self;
}

void ecfs_leading_stop (EcfsLeading *self)
{
    if (self == NULL)
        return;
    ecfs_ticker_stop (self->ticker);
    g_hash_table_unref (self->rows);
    g_free (self);
}
