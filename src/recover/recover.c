#include "archive/catalog_place.h"
#include "catalog/journal_file.h"
#include "catalog/pg.h"
#include "journal/journal_watch.h"
#include "journal/snapshot.h"
#include "recover/recover_priv.h"
#include "util/io.h"
#include "util/text.h"

#include <inttypes.h>
#include <stdarg.h>
#include <stdio.h>
#include <sys/stat.h>
#include <unistd.h>

#define VANISHED_ROUNDS 2
#define ROUNDS          4   /* until the catalog and what it says of the archive agree */
#define GROWTHS         3   /* times that it is made again since another machine has stored changes meanwhile */
#define RECENT_S        120 /* what wrote within this time may still be there */

static void tell_pending (EcfsRecovering *self)
{
    g_autoptr (GPtrArray) pending = g_steal_pointer (&self->pending);
    for (guint i = 0; pending != NULL && i < pending->len; i++)
        ecfs_recover_say (self, g_ptr_array_index (pending, i));
}

static bool is_empty (const EcfsRecovering *self)
{
    return !self->sums->has_snapshot && self->sums->n_records == 0;
}

/* Configuration */

static bool is_given (const EcfsRecover *what, const char *key)
{
    for (const char *const *given = what->given; given != NULL && *given != NULL; given++)
        if (g_str_equal (*given, key))
            return true;
    return false;
}

typedef struct Settings {
    EcfsRecovering *recovering;
    EcfsConfig *config;
} Settings;

static char *format_setting (const EcfsConfig *config, const char *key)
{
    const EcfsConfigOption *option = ecfs_config_options;
    while (option->key != NULL && !g_str_equal (option->key, key))
        option++;
    return option->key == NULL ? NULL : ecfs_config_format_option (config, option);
}

static void take_setting (void *user, const char *key, const char *value)
{
    Settings *self = user;
    g_autoptr (GError) error = NULL;
    if (g_str_equal (key, "deletion_grace")) { /* nothing that endpoints tell makes a deletion sooner */
        g_autofree char *now = format_setting (self->config, key);
        if (!self->recovering->what->names_only && !is_given (self->recovering->what, key) &&
            g_strcmp0 (value, now) != 0)
            ecfs_recover_tell (self->recovering,
                               "deletion_grace was %s and is %s now; change it in " ECFS_CONFIG_NAME
                               " if you want the old value",
                               value, now);
        return;
    }
    if (!is_given (self->recovering->what, key) && ecfs_config_travels (key) &&
        !ecfs_config_set (self->config, key, value, &error))
        ecfs_recover_tell (self->recovering, "the setting %s = %s is left out: %s", key, value, error->message);
}

/* Without a journal: the code that all files have which are no copies. */
static bool find_code (EcfsRecovering *self, EcfsConfig *config, GError **error)
{
    g_autofree char *found = NULL;
    g_autoptr (GPtrArray) codes = ecfs_catalog_codes_in_use (self->catalog, error);
    for (guint i = 0; codes != NULL && i < codes->len; i++) {
        g_autofree char *code = g_strdup (g_ptr_array_index (codes, i));
        *strchrnul (code, '/') = '\0';
        g_autoptr (EcfsCodec) codec = ecfs_codec_new (code, NULL);
        if (codec == NULL || (ecfs_codec_k (codec) > 1 && found != NULL))
            return true;
        if (ecfs_codec_k (codec) > 1)
            found = g_strdup (ecfs_codec_code (codec));
    }
    if (found == NULL || g_str_equal (found, config->code))
        return codes != NULL;
    ecfs_recover_tell (self, "code = %s is set, as of the files that are there", found);
    return ecfs_config_set (config, "code", found, error);
}

/* Whether the archive was made for fewer endpoints than its code makes stripes. */
static bool was_doubled (const EcfsRecovering *self, const EcfsCodec *codec)
{
    return self->has_doubled || (self->n_by_markers > 0 && self->n_by_markers < ecfs_codec_n (codec));
}

/* Where the journal does not tell how many stripes of a file an endpoint may hold, and one does not do. */
static void settle_doubling (EcfsRecovering *self, EcfsConfig *config, const EcfsCodec *codec, unsigned n_endpoints)
{
    bool enough = ecfs_archive_enough_endpoints (codec, n_endpoints, false, NULL);
    if (is_given (self->what, "allow_double") && config->allow_double != ECFS_DOUBLE_NO)
        return;
    if (enough && config->allow_double == ECFS_DOUBLE_TEMPORARY) {
        ecfs_recover_tell (self, "%u endpoints are enough for %s: allow_double = no is set", n_endpoints, config->code);
        config->allow_double = ECFS_DOUBLE_NO;
    }
    if (enough || config->allow_double != ECFS_DOUBLE_NO)
        return;
    bool was = was_doubled (self, codec);
    config->allow_double = was ? ECFS_DOUBLE_YES : ECFS_DOUBLE_TEMPORARY;
    if (was)
        ecfs_recover_tell (self,
                           "%s makes %u stripes, and the archive had fewer endpoints: allow_double = yes is set, as it "
                           "was",
                           config->code, ecfs_codec_n (codec));
    else
        ecfs_recover_tell (self,
                           "%s makes %u stripes, each for an endpoint of its own, and only %u endpoints are known: "
                           "allow_double = temporary is set, so an endpoint holds several stripes of a file, and files "
                           "survive the loss of fewer endpoints than they should. 'ecfs endpoint add' of enough "
                           "endpoints ends that",
                           config->code, ecfs_codec_n (codec), n_endpoints);
}

/* Where markers are files of their own, somebody keeps others from removing anything. */
static void keep_retained (const EcfsRecovering *self, EcfsConfig *config)
{
    for (size_t i = 0; i < self->n_places; i++) {
        const EcfsConfigEndpoint *endpoint = ecfs_config_endpoint (config, self->places[i].name);
        if (endpoint == NULL || ecfs_endpoint_retain_us (self->places[i].endpoint) != ECFS_RETAIN_ALWAYS)
            continue;
        if (endpoint->spec->options == NULL)
            endpoint->spec->options = g_hash_table_new_full (g_str_hash, g_str_equal, g_free, g_free);
        g_hash_table_insert (endpoint->spec->options, g_strdup (ECFS_RETAIN_OPTION_KEY), g_strdup ("never"));
    }
}

/* The endpoints as they are given, and the settings as the journal tells them; g_free (). */
static char *make_config (EcfsRecovering *self, GError **error)
{
    const EcfsConfig *given = self->what->config;
    g_autofree char *text = ecfs_config_format (given);
    g_autoptr (EcfsConfig) config = ecfs_config_parse (text, ECFS_CONFIG_NAME, error);
    Settings settings = {.recovering = self, .config = config};
    if (config == NULL || !ecfs_catalog_settings (self->catalog, take_setting, &settings, error))
        return NULL;
    for (guint i = config->endpoints->len; i-- > 0;) {
        const EcfsConfigEndpoint *endpoint = g_ptr_array_index (config->endpoints, i);
        bool is_ours = self->silent != NULL &&
                       g_ptr_array_find_with_equal_func (self->silent, endpoint->spec->name, g_str_equal, NULL);
        for (size_t j = 0; j < self->n_places; j++)
            is_ours = is_ours || g_str_equal (self->places[j].name, endpoint->spec->name);
        if (!is_ours)
            g_ptr_array_remove_index (config->endpoints, i);
    }
    keep_retained (self, config);
    ecfs_recover_set_zones (self, config);
    if (is_empty (self) && !is_given (self->what, "code") && !find_code (self, config, error))
        return NULL;
    g_autoptr (GPtrArray) rows = ecfs_catalog_endpoints (self->catalog, error);
    g_autoptr (EcfsCodec) codec = rows == NULL ? NULL : ecfs_codec_new (config->code, error);
    if (codec == NULL)
        return NULL;
    settle_doubling (self, config, codec, rows->len);
    if (self->what->read_only)
        g_clear_pointer (&config->catalog, g_free); /* it follows, or is looked at and gone */
    return ecfs_config_format (config);
}

/* The new archive */

static void take_code (void *user, const char *key, const char *value)
{
    if (g_str_equal (key, "code"))
        g_ptr_array_add (user, g_strdup (value));
}

/* What the archive is by its catalog: its endpoints, and how many of them have what `ecfs wait` waited for: one more
 * than the most tolerant code in use may lose, as far as there are so many. */
static bool measure (EcfsRecovering *self, size_t *ret_n_known, size_t *ret_n_copies, GError **error)
{
    unsigned tolerance = 0;
    size_t n_known = 0, n_active = 0;
    g_autoptr (GPtrArray) rows = ecfs_catalog_endpoints (self->catalog, error);
    g_autoptr (GPtrArray) codes = rows == NULL ? NULL : ecfs_catalog_codes_in_use (self->catalog, error);
    if (codes == NULL || !ecfs_catalog_settings (self->catalog, take_code, codes, error))
        return false;
    for (guint i = 0; i < codes->len; i++) {
        g_autofree char *code = g_strdup (g_ptr_array_index (codes, i));
        *strchrnul (code, '/') = '\0';
        g_autoptr (EcfsCodec) codec = ecfs_codec_new (code, NULL);
        tolerance = MAX (tolerance, codec == NULL ? 0 : ecfs_codec_tolerance (codec));
    }
    for (guint i = 0; i < rows->len; i++) {
        const EcfsEndpointRow *row = g_ptr_array_index (rows, i);
        n_known += row->state != ECFS_ENDPOINT_FAILED;
        n_active += row->state == ECFS_ENDPOINT_ACTIVE;
    }
    *ret_n_known = n_known;
    *ret_n_copies = CLAMP ((size_t) tolerance + 1, 1, MAX (n_active, 1));
    return true;
}

/* At how many endpoints the new catalog is stored. */
static size_t count_copies (EcfsRecovering *self)
{
    return MIN (MAX (self->n_copies, 3), self->n_places);
}

/* … and at how many it is to be, as a mount would store it. */
static size_t count_wanted (EcfsRecovering *self)
{
    return MIN (MAX (self->n_copies, ECFS_SNAPSHOT_COPIES), self->n_places);
}

/* Positions of all places, for g_free (): those that a mount stores snapshots at come first. */
static size_t *order_places (const EcfsRecovering *self)
{
    size_t n = 0, *places = g_new (size_t, self->n_places + 1);
    for (size_t i = 0; i < self->n_places; i++)
        if (self->places[i].state == ECFS_ENDPOINT_ACTIVE)
            places[n++] = i;
    for (size_t i = 0; i < self->n_places; i++)
        if (self->places[i].state != ECFS_ENDPOINT_ACTIVE)
            places[n++] = i;
    return places;
}

/* Stores it at places that can take it; the first *n_copies of *places, which has the positions of all, are where: as
 * many to begin with as are wanted. */
static bool store_somewhere (EcfsRecovering *self, const char *path, size_t *places, size_t *n_copies,
                             EcfsSnapshotRow *ret_row, GError **error)
{
    size_t n_least = count_copies (self);
    g_autofree EcfsEndpoint **endpoints = g_new (EcfsEndpoint *, *n_copies);
    for (size_t next = *n_copies;;) {
        GError *reason = NULL;
        size_t failed;
        const EcfsSnapshotOrder order = {
            .catalog = path, .keys = self->keys, .endpoints = endpoints, .n_endpoints = *n_copies};
        for (size_t i = 0; i < *n_copies; i++)
            endpoints[i] = self->places[places[i]].endpoint;
        if (ecfs_snapshot_store (&order, ret_row, &failed, &reason))
            return true;
        if (failed == *n_copies || (next == self->n_places && *n_copies == n_least)) {
            g_propagate_error (error, reason);
            return ecfs_prefix (error, "the new catalog cannot be stored on %zu endpoints", n_least);
        }
        if (next < self->n_places) {
            ecfs_recover_tell (self, "%s; the new catalog goes to endpoint %s instead", reason->message,
                               self->places[places[next]].name);
            places[failed] = places[next++];
        } else {
            ecfs_recover_tell (self, "%s; the new catalog is stored without it", reason->message);
            memmove (&places[failed], &places[failed + 1], (*n_copies - failed - 1) * sizeof *places);
            (*n_copies)--;
        }
        g_error_free (reason);
    }
}

/* From here on every older copy is an old one. */
static bool store_snapshot (EcfsRecovering *self, const char *path, GError **error)
{
    EcfsSnapshotRow row;
    size_t n_copies = count_wanted (self);
    g_autofree size_t *places = order_places (self);
    if (!ecfs_recover_tick (self, "snapshot of the new catalog", 0, 1, error) ||
        !ecfs_catalog_barrier (self->catalog, error) || !store_somewhere (self, path, places, &n_copies, &row, error) ||
        !ecfs_catalog_snapshot_add (self->catalog, &row, 2, INT64_MAX, error))
        return false;
    for (size_t i = 0; i < n_copies; i++) {
        const EcfsJournalPlace place = {
            .endpoint = self->places[places[i]].id, .sequence = row.sequence, .time_ns = row.time_ns};
        if (!ecfs_catalog_journal_stored (self->catalog, &place, error))
            return false;
    }
    return true;
}

/* The names that were given take the place of those that the journal tells. */
bool ecfs_recover_name_places (EcfsRecovering *self, GError **error)
{
    for (size_t i = 0; i < self->n_places; i++)
        if (!ecfs_restore_endpoint (self->restore, &self->places[i].marker.endpoint, self->places[i].name,
                                    &self->places[i].id, &self->places[i].state, error))
            return false;
    return true;
}

/* What somebody has decided of an endpoint outlives the machine, and may be decided anew. */
static void tell_states (EcfsRecovering *self)
{
    g_autofree char *directory = ecfs_recover_directory_word (self);
    for (size_t i = 0; i < self->n_places; i++) {
        g_autofree char *name = ecfs_shell_word (self->places[i].name);
        if (self->places[i].state == ECFS_ENDPOINT_DISTRUSTED)
            ecfs_recover_tell (self,
                               "endpoint %s is distrusted, as before, and its stripes count as lost: 'ecfs endpoint "
                               "distrust --undo %s %s' ends that",
                               self->places[i].name, directory, name);
        if (self->places[i].state == ECFS_ENDPOINT_READONLY)
            ecfs_recover_tell (self, "endpoint %s is readonly, as before: 'ecfs endpoint active %s %s' ends that",
                               self->places[i].name, directory, name);
    }
}

/* What `ecfs endpoint remove` took out is none of the archive's endpoints, whatever its marker says. */
static bool leave_removed (EcfsRecovering *self, GError **error)
{
    for (size_t i = self->n_places; i-- > 0;) {
        g_autofree char *was = NULL;
        if (!ecfs_catalog_endpoint_removed (self->catalog, &self->places[i].marker.endpoint, &was, error))
            return false;
        if (was == NULL)
            continue;
        g_autofree char *text = g_strdup_printf ("endpoint %s was taken out of the archive, as %s: it is left alone",
                                                 self->places[i].name, was);
        ecfs_recover_say (self, text); /* not with what is pending: all is read again without it */
        ecfs_recover_drop_place (self, i);
    }
    return self->n_places > 0 ||
           ecfs_fail (error, ENOENT, "all of the endpoints were taken out of the archive: give those that it has now");
}

static bool count_files (EcfsRecovering *self, GError **error)
{
    EcfsTotals totals;
    if (!ecfs_catalog_totals (self->catalog, &totals, error))
        return false;
    self->sums->n_files = totals.n_files;
    return true;
}

/* Reads what counts for an archive of so many endpoints and copies. */
static bool build (EcfsRecovering *self, const char *path, size_t n_known, size_t n_copies, GError **error)
{
    if (self->catalog != NULL)
        ecfs_recover_forget (self, path);
    g_clear_pointer (&self->pending, g_ptr_array_unref); /* it was about a catalog that is gone */
    self->pending = g_ptr_array_new_with_free_func (g_free);
    self->n_known = n_known;
    self->n_copies = n_copies;
    self->is_past = self->is_gapped = self->sums->is_older = false;
    self->then = 0;
    self->then_ns = 0;
    self->has_doubted = self->has_vanished = false;
    for (size_t i = 0; i < self->n_places; i++)
        self->places[i].n_doubts = 0;
    return ecfs_recover_journal (self, path, error);
}

/* The first catalog that can be made: by what authentic markers say of the archive, or else by what most endpoints have
 * alike. */
static bool guess (EcfsRecovering *self, const char *path, GError **error)
{
    if (self->keys != NULL && !build (self, path, self->n_known, self->n_copies, error))
        return false;
    if (self->keys != NULL && !is_empty (self))
        return true;
    for (size_t n_alike = self->n_places; n_alike > 0; n_alike--) {
        if (!build (self, path, self->n_places, n_alike, error))
            return false;
        if (!is_empty (self))
            break;
    }
    return true;
}

/* The catalog says how many endpoints and copies there are, and these say what counts for the catalog. */
static bool make_namespace (EcfsRecovering *self, const char *path, GError **error)
{
    size_t n_known, n_copies, n_places = 0;
    if (!guess (self, path, error))
        return false;
    for (unsigned round = 0; round < ROUNDS; round++) {
        n_places = self->n_places;
        if (!leave_removed (self, error) || !measure (self, &n_known, &n_copies, error))
            return false;
        /* A catalog of which nothing is believed says nothing of the archive, least of all that less is enough. */
        const bool nothing = is_empty (self);
        if (n_places == self->n_places &&
            ((n_known == self->n_known && n_copies == self->n_copies) || (nothing && self->n_copies > n_copies)))
            break;
        if (!build (self, path, n_known, n_copies, error))
            return false;
    }
    /* The mount may have made few segments of many meanwhile: they have other names now. */
    for (unsigned round = 0; self->has_vanished && round < VANISHED_ROUNDS; round++)
        if (!build (self, path, self->n_known, self->n_copies, error))
            return false;
    tell_pending (self);
    return true;
}

/* A machine that was lost while it gave keys to the archive has left some of a sealed snapshot, and all that is open.
 */
static bool make_keyed_namespace (EcfsRecovering *self, const char *path, GError **error)
{
    if (!make_namespace (self, path, error))
        return false;
    if (!self->may_be_open || self->keys == NULL || !is_empty (self))
        return true;
    ecfs_recover_set_keys_aside (self);
    return make_namespace (self, path, error);
}

static void name_doubted (EcfsRecovering *self)
{
    for (size_t i = 0; i < self->n_places; i++) {
        if (self->places[i].n_doubts == 0)
            continue;
        if (self->sums->doubted == NULL)
            self->sums->doubted = g_ptr_array_new_with_free_func (g_free);
        g_ptr_array_add (self->sums->doubted, g_strdup (self->places[i].name));
    }
}

bool ecfs_recover_make_catalog (EcfsRecovering *self, const char *path, GError **error)
{
    bool made = make_keyed_namespace (self, path, error);
    tell_pending (self);
    if (!made || !ecfs_recover_check_opened (self, error) || !ecfs_recover_reached (self, error) ||
        !ecfs_recover_leave_unknown (self, error) || !ecfs_recover_name_places (self, error) ||
        !ecfs_recover_take_zones (self, error))
        return false;
    name_doubted (self);
    self->sums->n_known = is_empty (self) ? MAX (self->n_known, self->n_by_markers) : self->n_known;
    self->sums->n_given = self->n_places;
    self->sequence = MAX (self->sequence, self->sums->sequence);
    if (self->used_epoch == UINT32_MAX)
        return ecfs_fail (error, EBADMSG, "the endpoints report an epoch that is impossible");
    if (self->new_epoch == 0)
        self->new_epoch = self->what->read_only ? self->epoch : self->used_epoch + 1;
    return ecfs_restore_finish (self->restore, self->new_epoch, self->sequence, error) &&
           ecfs_recover_note_keys (self, error) &&
           (self->what->names_only || (ecfs_recover_objects (self, error) && ecfs_recover_check_stripes (self, error) &&
                                       ecfs_restore_end (self->restore, &self->sums->n_unfinished, error))) &&
           count_files (self, error);
}

/* Whether it makes sense */

/* The names of endpoints that the archive has and that are not given: " (a, b)"; g_free (). */
static char *name_missing (EcfsRecovering *self)
{
    g_autoptr (GPtrArray) rows = ecfs_catalog_endpoints (self->catalog, NULL); /* without them it is said shorter */
    g_autoptr (GString) names = g_string_new (NULL);
    for (guint i = 0; rows != NULL && i < rows->len; i++) {
        const EcfsEndpointRow *row = g_ptr_array_index (rows, i);
        bool given = row->state == ECFS_ENDPOINT_FAILED;
        for (size_t j = 0; j < self->n_places; j++)
            given = given || self->places[j].id == row->id;
        if (!given)
            g_string_append_printf (names, "%s%s", names->len == 0 ? " (" : ", ", row->name);
    }
    if (names->len > 0)
        g_string_append_c (names, ')');
    return g_string_free (g_steal_pointer (&names), FALSE);
}

static bool refuse (EcfsRecovering *self, GError **error, const char *format, ...) G_GNUC_PRINTF (3, 4);

/* Says why it is refused; with force, and where nothing would change, only says so. */
static bool refuse (EcfsRecovering *self, GError **error, const char *format, ...)
{
    va_list arguments;
    va_start (arguments, format);
    g_autofree char *text = g_strdup_vprintf (format, arguments);
    va_end (arguments);
    if (self->what->force || self->what->read_only || self->what->dry_run) {
        ecfs_recover_tell (self, "%s", text);
        return true;
    }
    return ecfs_fail (error, ENOTRECOVERABLE, "%s", text);
}

/* Who has written a marker last, of those that are believed. */
static void note_writer (EcfsRecovering *self)
{
    const EcfsMarker *last = NULL;
    for (size_t i = 0; i < self->n_places; i++) {
        const EcfsRecoverPlace *place = &self->places[i];
        const EcfsMarker *marker = &place->marker;
        if (place->distrusted || place->doubtful)
            continue;
        if (last == NULL || marker->epoch > last->epoch ||
            (marker->epoch == last->epoch && marker->session_number > last->session_number))
            last = marker;
    }
    if (last != NULL)
        memcpy (self->sums->writer, last->host, sizeof self->sums->writer);
}

/* Another machine may be at work still: its copy of the archive becomes one for reading only. */
static bool check_quiet (EcfsRecovering *self, GError **error)
{
    int64_t ago_s = (g_get_real_time () * 1000 - self->sums->time_ns) / 1000000000;
    const char *writer = self->sums->writer;
    note_writer (self);
    if (self->sums->sequence == 0 || ago_s >= RECENT_S || self->what->read_only || self->what->dry_run)
        return true;
    g_autofree char *text =
        g_strdup_printf ("%s%s stored changes %" PRId64 " s ago, and may still have it mounted: "
                         "after a recovery its mount can only read, and what it stores meanwhile is lost. Make "
                         "sure that it is unmounted or gone",
                         *writer == '\0' ? "a machine with this archive" : "the machine ", writer, MAX (ago_s, 0));
    if (!self->what->force && self->what->ask != NULL && self->what->ask (self->what->user, text))
        return true;
    return refuse (self, error, "%s", text);
}

/* @names: as name_missing (); without a journal there are none, and the markers tell how many there are. */
static void tell_missing (EcfsRecovering *self, const char *names)
{
    size_t n_known = self->sums->n_known;
    bool comes_back = !self->what->dry_run && !self->what->read_only;
    g_autofree char *directory = ecfs_recover_directory_word (self);
    g_autofree char *advice =
        comes_back ? g_strdup_printf ("'ecfs endpoint add %s NAME=URL' brings one back, with what it has", directory)
                   : g_strdup ("give them too if they are still there");
    if (*names != '\0')
        ecfs_recover_tell (self, "endpoints of the archive are not given%s: %s", names, advice);
    else if (self->n_places < n_known)
        ecfs_recover_tell (self, "the archive has %zu endpoints by their markers, and %zu of them %s not given: %s",
                           n_known, n_known - self->n_places, n_known - self->n_places == 1 ? "is" : "are", advice);
}

static bool check_sense (EcfsRecovering *self, GError **error)
{
    g_autofree char *missing = name_missing (self);
    const size_t n_known = self->sums->n_known;
    if (self->n_places * 2 < n_known) {
        if (!refuse (self, error, "the archive has %zu endpoints, and only %zu of them %s given: give the others too%s",
                     n_known, self->n_places, self->n_places == 1 ? "is" : "are", missing))
            return false;
    } else {
        tell_missing (self, missing);
    }
    if (self->sums->n_lost_strays > 0 && is_empty (self) && self->n_places < n_known &&
        !refuse (self, error,
                 "%" PRIu64 " objects have too few stripes on these endpoints, and would be left out for ever: give "
                 "the others too",
                 self->sums->n_lost_strays))
        return false;
    if (self->sums->n_lost > 0 && *missing != '\0' &&
        !refuse (self, error, "%" PRIu64 " objects cannot be read with these endpoints alone: give the others too%s",
                 self->sums->n_lost, missing))
        return false;
    if (self->has_doubted && is_empty (self) &&
        !refuse (self, error, "nothing that the endpoints say is believed: name endpoints to believe"))
        return false;
    if (self->unsettled != NULL && !self->has_named &&
        !refuse (self, error,
                 "endpoints report later changes, but too few of them for this to be certain or ruled out (%s): names "
                 "may be lost permanently. Name endpoints to believe or to distrust, or leave out an endpoint that has "
                 "lost files",
                 self->unsettled))
        return false;
    return check_quiet (self, error);
}

/* The directory */

/* Where the catalog is to be in a database: as it is in the file, which is removed when nobody has it open. */
static bool move_catalog (EcfsRecovering *self, const char *text, GError **error)
{
    g_autofree char *file = g_build_filename (self->directory, ECFS_CATALOG_NAME, NULL);
    g_autoptr (EcfsConfig) config = ecfs_config_parse (text, ECFS_CONFIG_NAME, error);
    if (config == NULL || config->catalog == NULL)
        return config != NULL;
    ecfs_recover_tell (self, "the catalog is copied into the database");
    if (!ecfs_catalog_place_make (self->directory, config, &self->archive, error) ||
        !ecfs_catalog_barrier (self->catalog, error))
        return false;
    g_autofree char *place = ecfs_catalog_place (self->directory, config, error);
    if (place == NULL || !ecfs_pg_copy_from_file (place, file, NULL, error))
        return false;
    self->moved = g_steal_pointer (&place);
    return true;
}

/* Before anything is said to endpoints. */
static bool check_free (const EcfsRecovering *self, GError **error)
{
    char archive[ECFS_UUID_TEXT_SIZE];
    EcfsPgState state;
    ecfs_uuid_text (&self->archive, archive);
    const char *catalog = self->what->config->catalog;
    if (catalog == NULL || self->what->read_only)
        return true;
    g_autofree char *place = g_strconcat (catalog, "#", archive, NULL), *where = NULL;
    if (!ecfs_pg_state (place, &state, &where, error))
        return false;
    g_autofree char *name = ecfs_pg_display (place), *schema = ecfs_pg_schema (&self->archive);
    return state != ECFS_PG_USED ||
           ecfs_fail (
               error, EEXIST,
               "catalog %s: the archive's schema %s is there already: 'ecfs takeover' on the archive directory that "
               "uses it sets it aside; if that directory is lost, rename the schema",
               name, schema);
}

/* The last of what is made: a directory that has it is an archive. */
static bool write_config (EcfsRecovering *self, GError **error)
{
    g_autofree char *path = g_build_filename (self->directory, ECFS_CONFIG_NAME, NULL);
    g_autofree char *config = make_config (self, error);
    return config != NULL && move_catalog (self, config, error) &&
           ecfs_replace_file (path, config, strlen (config), 0600, error);
}

static void remove_moved (const EcfsRecovering *self)
{
    static const char *const names[] = {ECFS_CATALOG_NAME, ECFS_CATALOG_NAME "-wal", ECFS_CATALOG_NAME "-shm"};
    for (size_t i = 0; i < G_N_ELEMENTS (names); i++) {
        g_autofree char *path = g_build_filename (self->directory, names[i], NULL);
        (void) unlink (path); /* what stays is not used */
    }
}

/* The catalog begins the session that the markers will tell. */
static bool begin_session (EcfsRecovering *self, uint64_t *ret_number, GError **error)
{
    g_autofree uint64_t *said = g_new (uint64_t, self->n_places + 1);
    const EcfsUuid session = ecfs_recover_claim_session (self);
    for (size_t i = 0; i < self->n_places; i++)
        said[i] = UINT64_MAX - 1 - MIN (self->places[i].marker.session_number, INT64_MAX / 2);
    uint64_t least = ecfs_recover_least_said (self, said);
    for (size_t i = 0; i < self->n_places && self->keys != NULL; i++)
        least = MIN (least, UINT64_MAX - 1 - MIN (self->places[i].marker.session_number, INT64_MAX / 2));
    *ret_number = UINT64_MAX - MIN (least, UINT64_MAX - 1);
    return ecfs_catalog_session_begin (self->catalog, *ret_number, &session, error);
}

/* Makes the catalog what the archive is from now on. */
static bool take_over (EcfsRecovering *self, const char *path, GError **error)
{
    uint64_t session_number;
    if (!begin_session (self, &session_number, error) || !ecfs_recover_claim_stands (self, error))
        return false;
    self->has_stored = true;
    return store_snapshot (self, path, error) && ecfs_recover_claim_stands (self, error) &&
           ecfs_recover_tick (self, "markers", 0, 1, error) && ecfs_recover_claim_finish (self, session_number, error);
}

typedef struct Leftovers {
    EcfsRecovering *recovering;
    GPtrArray *names;
} Leftovers;

static void on_own_part (void *user, const EcfsListed *listed)
{
    Leftovers *self = user;
    EcfsJournalFile file;
    if (ecfs_journal_file_name_parse (listed->name, &file) && file.epoch == self->recovering->new_epoch)
        g_ptr_array_add (self->names, g_strdup (listed->name));
}

/* Nobody else has used the new epoch. */
static void remove_snapshot (EcfsRecovering *self)
{
    for (size_t i = 0; self->has_stored && i < self->n_places; i++) {
        g_autoptr (GError) error = NULL;
        g_autoptr (GPtrArray) names = g_ptr_array_new_with_free_func (g_free);
        Leftovers own = {.recovering = self, .names = names};
        EcfsEndpoint *endpoint = self->places[i].endpoint;
        bool gone = ecfs_endpoint_list_wait (endpoint, ECFS_SNAPSHOT_DIRECTORY, on_own_part, &own, &error);
        for (guint j = 0; gone && j < names->len; j++)
            gone = ecfs_endpoint_remove_wait (endpoint, g_ptr_array_index (names, j), &error);
        if (!gone)
            ecfs_recover_tell (self, "%s; parts of a snapshot of epoch %" PRIu32 " stay there, and count for nothing",
                               error->message, self->new_epoch);
    }
    self->has_stored = false;
}

static void reset_sums (EcfsRecovering *self)
{
    EcfsRecovered *sums = self->sums;
    g_clear_pointer (&sums->doubted, g_ptr_array_unref);
    sums->n_unfinished = sums->n_hinted = sums->n_set_apart = sums->n_lost = 0;
    sums->n_lost_strays = sums->n_foreign = self->n_given_up = self->n_exchanged = self->n_lacking = 0;
    self->has_doubled = false;
}

static bool fill_directory (EcfsRecovering *self, GError **error)
{
    g_autofree char *path = g_build_filename (self->directory, ECFS_CATALOG_NAME, NULL);
    bool changes = !self->what->dry_run && !self->what->read_only, grew = true;
    ecfs_recover_hear_markers (self);
    if (!check_free (self, error) || !ecfs_archive_make_directories (self->directory, error) ||
        !ecfs_recover_keep_keys (self, error) || (changes && !ecfs_recover_claim_begin (self, error)) ||
        !ecfs_recover_make_catalog (self, path, error) || !check_sense (self, error))
        return false;
    if (self->what->dry_run)
        return true;
    if (self->what->read_only)
        return ecfs_catalog_keep_setting (self->catalog, ECFS_READ_ONLY_KEY, "yes", error) &&
               write_config (self, error);
    for (unsigned round = 0;; round++) {
        if (!take_over (self, path, error) || !ecfs_recover_journal_grew (self, &grew, error))
            return false;
        if (!grew)
            return write_config (self, error);
        if (round == GROWTHS)
            return ecfs_fail (error, EAGAIN, "another machine keeps storing changes: unmount the archive there");
        ecfs_recover_tell (self, "another machine has stored changes meanwhile: the catalog is made again");
        remove_snapshot (self);
        reset_sums (self);
        if (!ecfs_recover_make_catalog (self, path, error))
            return false;
    }
}

bool ecfs_recover_begin (EcfsRecovering *self, GError **error)
{
    return ecfs_recover_open_places (self, error) && ecfs_recover_gather_keys (self, error) &&
           ecfs_recover_judge_markers (self, error) && ecfs_recover_check_keys (self, error) &&
           ecfs_recover_weigh_keys (self, error);
}

void ecfs_recover_close (EcfsRecovering *self)
{
    ecfs_recover_claim_free (self);
    g_clear_pointer (&self->seen, g_hash_table_unref);
    g_clear_pointer (&self->unsettled, g_free);
    ecfs_restore_free (g_steal_pointer (&self->restore));
    ecfs_recover_close_places (self);
    g_clear_pointer (&self->pending, g_ptr_array_unref);
}

static bool recover_into (EcfsRecovering *self, GError **error)
{
    bool good = ecfs_recover_begin (self, error) && fill_directory (self, error);
    self->sums->archive = self->archive;
    if (good)
        self->sums->epoch = ecfs_catalog_epoch (self->catalog);
    if (good && self->what->at_ns != 0) {
        self->sums->sequence = self->then;
        self->sums->time_ns = self->then_ns;
    }
    if (good) {
        tell_states (self);
        ecfs_recover_tell_zones (self);
    }
    if (good && self->keys != NULL)
        self->sums->key = *ecfs_key_ring_active (self->keys);
    if (!good) {
        tell_pending (self);
        remove_snapshot (self);
        ecfs_recover_claim_give_up (self);
    }
    ecfs_recover_close (self);
    good = ecfs_catalog_close (self->catalog, good ? error : NULL) && good;
    if (self->moved != NULL && good)
        remove_moved (self);
    else if (self->moved != NULL)
        (void) ecfs_pg_drop (self->moved, false, NULL); /* the first error is the one to tell */
    g_clear_pointer (&self->moved, g_free);
    return good;
}

/* In a directory that is gone afterwards. */
static bool rehearse (EcfsRecovering *self, GError **error)
{
    g_autofree char *directory = g_dir_make_tmp ("ecfs-recover-XXXXXX", error);
    if (directory == NULL)
        return false;
    self->directory = directory;
    bool good = recover_into (self, error);
    ecfs_archive_empty_directory (directory, true);
    return good;
}

bool ecfs_archive_recover (const EcfsRecover *what, EcfsRecovered *ret_recovered, GError **error)
{
    *ret_recovered = (EcfsRecovered){.sequence = 0};
    EcfsRecovering self = {.what = what, .sums = ret_recovered, .directory = (char *) what->directory};
    if (what->archive != NULL)
        self.archive = *what->archive;
    if (what->dry_run)
        return rehearse (&self, error);
    bool made;
    ecfs_autofd lock = -1;
    if (!ecfs_archive_begin_directory (what->directory, &lock, &made, error))
        return false;
    if (recover_into (&self, error)) {
        ecfs_archive_end_directory (what->directory);
        return true;
    }
    ecfs_archive_empty_directory (what->directory, made);
    return false;
}

void ecfs_recovered_clear (EcfsRecovered *recovered)
{
    g_clear_pointer (&recovered->doubted, g_ptr_array_unref);
}
