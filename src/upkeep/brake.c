/*
 * The brake on mass deletions. The catalog counts the files that lose content (EcfsTotals.n_lost), so that nothing is
 * done for each of them; here it is looked now and then how many these were within the last hour. Where they were many,
 * what they had is kept for history_min, and it is said once.
 */
#include "upkeep/upkeep.h"

#include "archive/common.h"
#include "catalog/brake.h"
#include "util/text.h"

#include <inttypes.h>

#define NS_PER_US   1000
#define HOUR_NS     INT64_C (3600000000000)
#define KEEP_NS     INT64_C (60000000000) /* so often what is lost slowly is noted, and that the brake goes on */
#define LEAST_FILES 1000                  /* fewer are nothing to worry about */
#define HOLD_SHARE  2                     /* what is so much of too many waits for whether it becomes that */
#define FINE_SHARE  64                    /* what is so little of it belongs to something else, before it */

struct EcfsBrakeWatch {
    EcfsArchive *archive;
    bool looked;
    EcfsLosses before; /* of the last look */
};

/* The losses by which what comes is measured. */
typedef struct Window {
    EcfsLosses begin;
    uint64_t n_lost;   /* since then */
    uint64_t n_files;  /* the most that there were */
    uint64_t too_many; /* more than that are */
} Window;

static Window window_of (const EcfsArchive *archive, const GArray *kept, const EcfsLosses *now)
{
    Window self = {.begin = kept->len == 0 ? *now : g_array_index (kept, EcfsLosses, 0), .n_files = now->n_files};
    for (guint i = 0; i < kept->len; i++) {
        const EcfsLosses *losses = &g_array_index (kept, EcfsLosses, i);
        if (losses->age_ns <= now->age_ns - HOUR_NS)
            self.begin = *losses;
    }
    for (guint i = 0; i < kept->len; i++)
        if (g_array_index (kept, EcfsLosses, i).age_ns >= self.begin.age_ns)
            self.n_files = MAX (self.n_files, g_array_index (kept, EcfsLosses, i).n_files);
    self.n_lost = now->n_lost - MIN (self.begin.n_lost, now->n_lost);
    self.too_many = MAX (self.n_files / 100 * ecfs_archive_config (archive)->delete_brake, LEAST_FILES);
    return self;
}

/* What was before the most of it. */
static EcfsLosses before_of (const Window *window, const GArray *kept)
{
    EcfsLosses before = window->begin;
    for (guint i = 0; i < kept->len; i++) {
        const EcfsLosses *losses = &g_array_index (kept, EcfsLosses, i);
        if (losses->age_ns > before.age_ns && losses->n_lost - window->begin.n_lost <= window->n_lost / FINE_SHARE)
            before = *losses;
    }
    return before;
}

/* Notes how it was before something was lost: soon where that is much. */
static bool keep_before (EcfsBrakeWatch *self, const EcfsLosses *now, GError **error)
{
    EcfsCatalog *catalog = ecfs_archive_catalog (self->archive);
    if (self->looked && self->before.n_lost == now->n_lost)
        return true;
    g_autoptr (GArray) kept = ecfs_catalog_losses (catalog, error);
    if (kept == NULL)
        return false;
    if (!self->looked) /* what is measured by comes from the process before, or there is none yet */
        return kept->len > 0 || ecfs_catalog_losses_keep (catalog, now, now->age_ns - HOUR_NS, error);
    const EcfsLosses *last = kept->len == 0 ? NULL : &g_array_index (kept, EcfsLosses, kept->len - 1);
    if (last != NULL && self->before.age_ns - last->age_ns < KEEP_NS &&
        now->n_lost - MIN (last->n_lost, now->n_lost) < LEAST_FILES / FINE_SHARE)
        return true;
    return ecfs_catalog_losses_keep (catalog, &self->before, now->age_ns - HOUR_NS, error);
}

char *ecfs_brake_moment (const EcfsBrake *brake)
{
    const int64_t us = brake->from.time_ns / NS_PER_US;
    g_autoptr (GDateTime) second = g_date_time_new_from_unix_utc (us / G_USEC_PER_SEC);
    g_autofree char *text = second == NULL ? g_strdup ("?") : g_date_time_format (second, "%FT%T");
    return g_strdup_printf ("%s.%06dZ", text, (int) (us % G_USEC_PER_SEC));
}

char *ecfs_brake_command (const EcfsArchive *archive, const EcfsBrake *brake)
{
    g_autofree char *moment = ecfs_brake_moment (brake);
    g_autofree char *word = ecfs_shell_word (ecfs_archive_directory (archive));
    return g_strdup_printf ("ecfs undelete --at \"%s\" %s /", moment, word);
}

static void tell (EcfsBrakeWatch *self, const EcfsBrake *brake)
{
    g_autofree char *command = ecfs_brake_command (self->archive, brake);
    g_warning ("%s: %" PRIu64 " of %" PRIu64 " files were deleted or overwritten within an hour: what is left of what "
               "they had is kept for history_min; '%s' brings it back, 'ecfs history --release' lets it go",
               ecfs_archive_directory (self->archive), brake->last.n_lost - brake->from.n_lost, brake->last.n_files,
               command);
}

static bool apply (EcfsBrakeWatch *self, const EcfsLosses *now, const Window *window, const GArray *kept,
                   GError **error)
{
    EcfsBrake brake;
    EcfsCatalog *catalog = ecfs_archive_catalog (self->archive);
    const int64_t kept_ns = ecfs_archive_config (self->archive)->history_min_us * NS_PER_US;
    const int64_t until_ns = now->age_ns + kept_ns;
    if (kept_ns == 0)
        return true;
    if (!ecfs_catalog_brake (catalog, &brake, error))
        return false;
    bool news = brake.until_age_ns == 0;
    if (!news && until_ns - brake.until_age_ns < MIN (KEEP_NS, kept_ns / 2))
        return true;
    if (news)
        brake.from = before_of (window, kept);
    brake.until_age_ns = MAX (until_ns, brake.until_age_ns);
    brake.last = *now;
    brake.last.n_files = MAX (window->n_files, brake.last.n_files);
    if (!ecfs_catalog_brake_set (catalog, &brake, error))
        return false;
    if (news)
        tell (self, &brake);
    return true;
}

static bool look (EcfsBrakeWatch *self, int64_t *ret_held_from_ns, GError **error)
{
    EcfsLosses now;
    EcfsCatalog *catalog = ecfs_archive_catalog (self->archive);
    if (!ecfs_catalog_losses_now (catalog, &now, error) || !keep_before (self, &now, error))
        return false;
    self->looked = true;
    self->before = now;
    g_autoptr (GArray) kept = ecfs_catalog_losses (catalog, error);
    if (kept == NULL)
        return false;
    const Window window = window_of (self->archive, kept, &now);
    if (window.n_lost > window.too_many / HOLD_SHARE)
        *ret_held_from_ns = window.begin.age_ns;
    return window.n_lost <= window.too_many || apply (self, &now, &window, kept, error);
}

EcfsBrakeWatch *ecfs_brake_watch_new (EcfsArchive *archive)
{
    EcfsBrakeWatch *self = g_new0 (EcfsBrakeWatch, 1);
    self->archive = archive;
    return self;
}

bool ecfs_brake_watch_look (EcfsBrakeWatch *self, int64_t *ret_held_from_ns)
{
    EcfsBrake brake;
    g_autoptr (GError) error = NULL;
    *ret_held_from_ns = INT64_MAX;
    if (ecfs_archive_config (self->archive)->delete_brake == 0 || ecfs_archive_is_readonly (self->archive))
        return true;
    if (!look (self, ret_held_from_ns, &error) ||
        !ecfs_catalog_brake (ecfs_archive_catalog (self->archive), &brake, &error)) {
        g_info ("%s", error->message); /* tried again; the catalog says what is wrong with it */
        return false;
    }
    if (brake.until_age_ns > 0)
        *ret_held_from_ns = MIN (*ret_held_from_ns, brake.from.age_ns);
    return true;
}

void ecfs_brake_watch_free (EcfsBrakeWatch *self)
{
    g_free (self);
}
