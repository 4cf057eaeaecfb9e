/*
 * Pruning accounts that only grow, from a machine whose logins may delete there. It is nobody's archive directory that
 * decides: the journal at the endpoints does, read from its first record to its last, with the times at which servers
 * say that they got it. Nothing goes but what records name that are older than what is kept, and none since mentions.
 *
 * Whoever brings something back meanwhile (`ecfs undelete`) and this both write first and then read: that one stores
 * its journal, and looks for the note; this leaves the note, and reads the journal before each batch.
 */
#include "verbs/prune_priv.h"

#include "archive/common.h"
#include "catalog/journal_rows.h"
#include "catalog/marks.h"
#include "util/io.h"
#include "util/text.h"
#include "util/units.h"
#include "verbs/past.h"

#include <inttypes.h>
#include <json-glib/json-glib.h>
#include <stdlib.h>
#include <string.h>

#define KEEP_US       (INT64_C (30) * 24 * 3600 * G_USEC_PER_SEC)
#define MAX_SHARE     10
#define CLOCK_S       3600             /* as far as clocks may differ */
#define ACCEPTED_NAME "prune-accepted" /* up to when losses were meant to be, as nanoseconds since 1970 */

bool ecfs_prune_tick (const EcfsPruning *self, const char *phase, uint64_t n_done, uint64_t n_all, GError **error)
{
    return self->what->progress == NULL || self->what->progress (self->what->user, phase, n_done, n_all) ||
           ecfs_fail (error, ECANCELED, "cancelled");
}

static void tell (const EcfsPruning *self, const char *format, ...) G_GNUC_PRINTF (2, 3);

static void tell (const EcfsPruning *self, const char *format, ...)
{
    va_list arguments;
    va_start (arguments, format);
    g_autofree char *text = g_strdup_vprintf (format, arguments);
    va_end (arguments);
    if (self->what->tell != NULL)
        self->what->tell (self->what->user, text);
    else
        g_message ("%s", text);
}

/* As --at and --accept take it; never before the moment. g_free () */
static char *moment_text (int64_t time_ns)
{
    const int64_t us = (time_ns + 999) / 1000;
    g_autoptr (GDateTime) second = g_date_time_new_from_unix_utc (us / G_USEC_PER_SEC);
    g_autofree char *text = second == NULL ? g_strdup ("?") : g_date_time_format (second, "%FT%T");
    return g_strdup_printf ("%s.%06dZ", text, (int) (us % G_USEC_PER_SEC));
}

/* The directory */

static bool make_directory (const char *directory, const EcfsPrune *what, GError **error)
{
    const EcfsRecovery recovery = {.endpoints = what->endpoints,
                                   .key_file = what->key_file,
                                   .secrets = what->secrets,
                                   .read_only = true,
                                   .names_only = true,
                                   .tell = what->tell,
                                   .progress = what->progress,
                                   .user = what->user};
    if (ecfs_archive_is_one (directory))
        return true;
    if (what->endpoints == NULL)
        return ecfs_fail (error, EINVAL,
                          "%s: there is no such directory yet: name the archive's endpoints, with logins that may "
                          "delete, and it is made",
                          directory);
    g_autofree char *report = ecfs_recover (directory, &recovery, error);
    return report != NULL;
}

static char *accepted_path (const EcfsPruning *self)
{
    return g_build_filename (ecfs_archive_directory (self->archive), ACCEPTED_NAME, NULL);
}

static bool accept (EcfsPruning *self, GError **error)
{
    g_autofree char *path = accepted_path (self), *text = NULL;
    size_t size;
    if (self->what->accept == NULL) {
        if (ecfs_read_file (path, 64, &text, &size, NULL)) /* there mostly is none */
            self->past.accepted_ns = g_ascii_strtoll (text, NULL, 10);
        return true;
    }
    if (!ecfs_past_moment (self->what->accept, &self->past.accepted_ns, error))
        return false;
    text = g_strdup_printf ("%" PRId64 "\n", self->past.accepted_ns);
    return self->what->dry_run || ecfs_replace_file (path, text, strlen (text), 0600, error);
}

/* Following */

static bool check_sure (const EcfsPruning *self, GError **error)
{
    const EcfsFollowed *state = ecfs_follow_state (self->follow);
    return state->is_sure ||
           ecfs_fail (error, EAGAIN,
                      "%zu of %zu endpoints tell what the archive is now, and that takes %zu: bring endpoints back, "
                      "nothing is removed",
                      state->n_asked, state->n_known, state->n_known - MIN (state->n_copies, state->n_known) + 1);
}

bool ecfs_prune_go_on (EcfsPruning *self, GError **error)
{
    GPtrArray *rows = NULL;
    self->is_lost = true;
    if (!ecfs_follow_step (self->follow, &rows, error))
        return false;
    g_autoptr (GPtrArray) own = rows;
    if (own == NULL)
        return ecfs_fail (error, EAGAIN, "the archive changed much, or was taken over just now: run this again");
    if (!ecfs_prune_past_heed (&self->past, own, error) || !check_sure (self, error))
        return false;
    self->is_lost = false;
    return true;
}

static void find_history (void *user, const char *key, const char *value)
{
    int64_t us, *history_us = user;
    if (g_str_equal (key, "history") && ecfs_parse_duration (value, &us))
        *history_us = us;
}

/* What is kept of the past by ecfs.conf is kept here as well. */
static bool find_keep (EcfsPruning *self, GError **error)
{
    int64_t history_us = 0;
    self->keep_us = KEEP_US;
    if (self->what->keep != NULL && (!ecfs_parse_duration (self->what->keep, &self->keep_us) || self->keep_us <= 0))
        return ecfs_fail (error, EINVAL, "%s: this is no time to keep what died, such as 60d", self->what->keep);
    if (!ecfs_catalog_settings (ecfs_archive_catalog (self->archive), find_history, &history_us, error))
        return false;
    if (self->what->keep != NULL && history_us > self->keep_us)
        tell (self, "what died is kept for as long as the archive's history: %" PRId64 " s",
              history_us / G_USEC_PER_SEC);
    self->keep_us = MAX (self->keep_us, history_us);
    return true;
}

static bool begin (EcfsPruning *self, const char *directory, GError **error)
{
    GPtrArray *rows = NULL;
    if (!make_directory (directory, self->what, error))
        return false;
    self->archive = ecfs_archive_open (directory, ECFS_ARCHIVE_READONLY, error);
    if (self->archive == NULL)
        return false;
    self->follow = ecfs_follow_begin (self->archive, error);
    if (self->follow == NULL || !ecfs_prune_tick (self, "journal", 0, 1, error) ||
        !ecfs_follow_step (self->follow, &rows, error))
        return false;
    g_clear_pointer (&rows, g_ptr_array_unref);
    self->begin_sequence = ecfs_follow_state (self->follow)->sequence;
    self->times = (EcfsPruneTimes){.files = g_array_new (FALSE, FALSE, sizeof (EcfsPruneFile)),
                                   .n_copies = ecfs_follow_state (self->follow)->n_copies,
                                   .now_ns = g_get_real_time () * 1000,
                                   .read = ecfs_prune_place_read_journal,
                                   .user = self,
                                   .from = 1};
    return check_sure (self, error) && find_keep (self, error) && accept (self, error);
}

/* Places */

static void give_up (const EcfsPruning *self, EcfsPrunePlace *place, GError *why)
{
    if (place->error == NULL) {
        place->error = why;
        tell (self, "%s", why->message);
    } else {
        g_error_free (why);
    }
}

static void open_places (EcfsPruning *self)
{
    self->places = g_new0 (EcfsPrunePlace, ecfs_archive_n_endpoints (self->archive) + 1);
    for (size_t i = 0; i < ecfs_archive_n_endpoints (self->archive); i++) {
        const EcfsArchiveEndpoint *endpoint = ecfs_archive_endpoint (self->archive, i);
        GError *why = NULL;
        if (!ecfs_archive_endpoint_counts (endpoint) ||
            ecfs_config_endpoint (ecfs_archive_config (self->archive), endpoint->name) == NULL)
            continue;
        EcfsPrunePlace *place = &self->places[self->n_places++];
        if (!ecfs_prune_place_open (place, self, endpoint, &why) || !ecfs_prune_place_list_journal (place, self, &why))
            give_up (self, place, why);
    }
}

static size_t n_good (const EcfsPruning *self)
{
    size_t n = 0;
    for (size_t i = 0; i < self->n_places; i++)
        n += self->places[i].error == NULL;
    return n;
}

/* As many as have to tell what the journal is also tell since when they have it. */
static bool check_places (const EcfsPruning *self, GError **error)
{
    const EcfsFollowed *state = ecfs_follow_state (self->follow);
    return n_good (self) + state->n_copies > state->n_known ||
           ecfs_fail (error, EAGAIN,
                      "%zu of %zu endpoints can be looked at, and that is too few to be sure: bring endpoints back, "
                      "nothing is removed",
                      n_good (self), state->n_known);
}

/* The past */

static bool check_past (EcfsPruning *self, GError **error)
{
    const EcfsPrunePast *past = &self->past;
    g_autoptr (GArray) marks = ecfs_catalog_marks (ecfs_archive_catalog (self->archive), error);
    if (marks == NULL)
        return false;
    self->has_marks = marks->len > 0;
    if (past->sums.sequence < self->begin_sequence || past->sums.epoch != ecfs_follow_state (self->follow)->epoch)
        return ecfs_fail (error, EBADMSG,
                          "what is kept of the journal does not lead to what the archive is now (change %" PRIu64
                          " of %" PRIu64 "): nothing is removed",
                          past->sums.sequence, self->begin_sequence);
    if (past->sums.n_refused > 0)
        return ecfs_fail (error, EBADMSG,
                          "%" PRIu64 " changes of the journal cannot be applied, and nobody knows what they keep: "
                          "nothing is removed",
                          past->sums.n_refused);
    for (guint i = 0; i < marks->len; i++)
        if (g_array_index (marks, EcfsMark, i).sequence < past->begin)
            return ecfs_fail (error, EPERM,
                              "the mark %s is from before a gap in the journal, such as a recovery leaves, so that "
                              "nobody knows what it needs: nothing is removed while it is there ('ecfs mark --remove')",
                              g_array_index (marks, EcfsMark, i).name);
    return true;
}

static unsigned percent (uint64_t n, uint64_t of)
{
    return of == 0 ? (n > 0 ? 100 : 0) : (unsigned) (100.0 * (double) n / (double) of);
}

/* Why nothing may be removed, g_free (); NULL: it may. */
static char *find_refusal (const EcfsPruning *self)
{
    EcfsPruneLoss loss;
    const unsigned max_share = self->what->max_share == 0 ? MAX_SHARE : self->what->max_share;
    if (!ecfs_prune_find_loss (self->past.samples, self->past.accepted_ns, max_share, &loss))
        return NULL;
    g_autofree char *from = moment_text (loss.from_ns), *to = moment_text (loss.to_ns),
                    *last = moment_text (loss.last_ns);
    g_autofree char *word = ecfs_shell_word (ecfs_archive_directory (self->archive));
    return g_strdup_printf (
        "%" PRIu64 " of %" PRIu64 " files were deleted or overwritten within a day, and %u%% of the bytes at the "
        "endpoints replaced or let go, from %s to %s: a thief would want that to be removed. See what there was "
        "before with 'ecfs ls --at \"%s\" %s'; where the archive is written, 'ecfs undelete --at \"%s\" ARCHIVE /' "
        "brings it back. If it was meant, 'ecfs prune --accept \"%s\" %s' lets it go",
        loss.n_files, loss.of_files, percent (loss.bytes, loss.of_bytes), from, to, from, word, from, last, word);
}

/* Removing */

/* What is to go, of places where nothing is wrong. */
static EcfsPruneSum sum_up (const EcfsPruning *self)
{
    EcfsPruneSum sum = {.n = 0};
    for (size_t i = 0; i < self->n_places; i++) {
        const EcfsPrunePlace *place = &self->places[i];
        if (place->error != NULL || place->dead == NULL)
            continue;
        sum.n += place->dead->len + place->old->len;
        sum.bytes += place->found.bytes;
        for (size_t kind = 0; kind < ECFS_PRUNE_N_KINDS; kind++)
            sum.bytes += place->old_found[kind].bytes;
    }
    return sum;
}

static void look_at_places (EcfsPruning *self)
{
    for (size_t i = 0; i < self->n_places; i++) {
        GError *why = NULL;
        if (self->places[i].error == NULL && !ecfs_prune_place_look (&self->places[i], self, &why))
            give_up (self, &self->places[i], why);
    }
}

/* Markers, and of the journal what is not needed any more. */
static bool look_for_old (EcfsPruning *self, GError **error)
{
    if (!ecfs_prune_journal_judge (self, error))
        return false;
    for (size_t i = 0; i < self->n_places; i++) {
        GError *why = NULL;
        if (self->places[i].error == NULL && (!ecfs_prune_marks_find (&self->places[i], self, &why) ||
                                              !ecfs_prune_journal_find (self, &self->places[i], &why)))
            give_up (self, &self->places[i], why);
    }
    return true;
}

/* One whose clock is wrong, or the clock here is: then everything seems old. */
static bool compare_clocks (EcfsPruning *self, GError **error)
{
    const int64_t now_s = g_get_real_time () / G_USEC_PER_SEC;
    size_t n_wrong = 0, n_right = 0;
    for (size_t i = 0; i < self->n_places; i++) {
        EcfsPrunePlace *place = &self->places[i];
        if (place->error != NULL)
            continue;
        const bool is_wrong = llabs (place->now_s - now_s) > CLOCK_S;
        n_wrong += is_wrong;
        n_right += !is_wrong;
        if (is_wrong) {
            GError *why = NULL;
            (void) !ecfs_fail (&why, ERANGE, "endpoint %s: its clock is %" PRId64 " s away from the one here",
                               place->name, place->now_s - now_s);
            give_up (self, place, why);
        }
    }
    return n_wrong == 0 || n_right >= self->times.n_copies ||
           ecfs_fail (error, ERANGE, "the clock here differs from those of the endpoints: nothing is removed");
}

/* What a run has left that was killed: whatever becomes of this one, who brings things back has not to wait for it. */
static void end_left_notes (EcfsPruning *self)
{
    for (size_t i = 0; !self->what->dry_run && i < self->n_places; i++) {
        GError *why = NULL;
        if (self->places[i].error == NULL && !ecfs_prune_place_end_left (&self->places[i], &why))
            give_up (self, &self->places[i], why);
    }
}

static void end_notes (EcfsPruning *self)
{
    for (size_t i = 0; i < self->n_places; i++) {
        EcfsPrunePlace *place = &self->places[i];
        GError *why = NULL;
        if (place->has_note && !ecfs_prune_place_end (place, &why))
            give_up (self, place, why);
    }
}

/* One that fails keeps no other from it; only what is said of all does. */
static bool remove_everywhere (EcfsPruning *self, bool (*remove) (EcfsPrunePlace *, EcfsPruning *, GError **),
                               GError **error)
{
    bool good = true;
    for (size_t i = 0; good && i < self->n_places; i++) {
        GError *why = NULL;
        if (self->places[i].error != NULL || remove (&self->places[i], self, &why))
            continue;
        good = !self->is_lost && why->code != ECANCELED;
        if (good)
            give_up (self, &self->places[i], why);
        else
            g_propagate_error (error, why);
    }
    return good;
}

/* What died and could not be removed is known for dead by the journal. */
static bool is_all_removed (EcfsPruning *self)
{
    bool all = true;
    for (size_t i = 0; i < self->n_places; i++)
        all = all && self->places[i].error == NULL && self->places[i].removed.n >= self->places[i].found.n;
    if (!all)
        tell (self, "journal, snapshots and markers stay until what died is removed everywhere");
    return all;
}

static bool remove_all (EcfsPruning *self, GError **error)
{
    for (size_t i = 0; i < self->n_places; i++) {
        GError *why = NULL;
        if (self->places[i].error == NULL && !ecfs_prune_place_note (&self->places[i], &why))
            give_up (self, &self->places[i], why);
    }
    const bool good = compare_clocks (self, error) && remove_everywhere (self, ecfs_prune_place_remove, error) &&
                      (!is_all_removed (self) || remove_everywhere (self, ecfs_prune_place_remove_old, error));
    end_notes (self);
    return good;
}

static bool may_remove (const EcfsPruning *self, GError **error)
{
    const EcfsPruneSum sum = sum_up (self);
    g_autofree char *text =
        g_strdup_printf ("%" PRIu64 " files of %" PRIu64 " bytes are removed from the endpoints, and "
                         "never come back",
                         sum.n, sum.bytes);
    return self->what->ask == NULL || self->what->ask (self->what->user, text) ||
           ecfs_fail (error, ECANCELED, "nothing is removed");
}

/* The report */

static void put (JsonObject *object, const char *name, uint64_t value)
{
    json_object_set_int_member (object, name, (int64_t) value);
}

static void put_old (JsonObject *facts, const EcfsPrunePlace *place, EcfsPruneKind kind, const char *word)
{
    const EcfsPruneSum *found = &place->old_found[kind], *removed = &place->old_removed[kind];
    const struct {
        const char *suffix;
        uint64_t value;
    } members[] = {
        {"files", found->n}, {"bytes", found->bytes}, {"removed", removed->n}, {"removed_bytes", removed->bytes}};
    for (size_t i = 0; i < G_N_ELEMENTS (members); i++) {
        g_autofree char *name = g_strconcat (word, "_", members[i].suffix, NULL);
        put (facts, name, members[i].value);
    }
}

static JsonObject *place_facts (const EcfsPrunePlace *place)
{
    JsonObject *facts = json_object_new ();
    json_object_set_string_member (facts, "endpoint", place->name);
    put (facts, "files", place->found.n);
    put (facts, "bytes", place->found.bytes);
    if (place->found.n > 0) {
        json_object_set_int_member (facts, "oldest_s", place->oldest_s);
        json_object_set_int_member (facts, "newest_s", place->newest_s);
    }
    put (facts, "removed", place->removed.n);
    put (facts, "removed_bytes", place->removed.bytes);
    put (facts, "unproven", place->strange.n);
    put (facts, "unproven_bytes", place->strange.bytes);
    put (facts, "unknown", place->unknown.n);
    put (facts, "unknown_bytes", place->unknown.bytes);
    put_old (facts, place, ECFS_PRUNE_JOURNAL, "journal");
    put_old (facts, place, ECFS_PRUNE_SNAPSHOTS, "snapshot");
    put_old (facts, place, ECFS_PRUNE_MARKERS, "marker");
    put (facts, "unreadable", place->unreadable.n);
    put (facts, "unreadable_bytes", place->unreadable.bytes);
    if (place->error != NULL)
        json_object_set_string_member (facts, "error", place->error->message);
    return facts;
}

static char *report (const EcfsPruning *self, const char *refusal)
{
    JsonObject *facts = json_object_new ();
    JsonArray *places = json_array_new ();
    bool is_done = refusal == NULL;
    for (size_t i = 0; i < self->n_places; i++) {
        json_array_add_object_element (places, place_facts (&self->places[i]));
        is_done = is_done && self->places[i].error == NULL;
    }
    json_object_set_boolean_member (facts, "dry_run", self->what->dry_run);
    json_object_set_int_member (facts, "keep_s", self->keep_us / G_USEC_PER_SEC);
    json_object_set_int_member (facts, "then_ns", self->past.then_ns);
    if (refusal != NULL)
        json_object_set_string_member (facts, "refused", refusal);
    if (self->journal.stays != NULL)
        json_object_set_string_member (facts, "journal_stays", self->journal.stays);
    json_object_set_boolean_member (facts, "done", is_done);
    json_object_set_array_member (facts, "endpoints", places);
    g_autoptr (JsonNode) node = json_node_new (JSON_NODE_OBJECT);
    json_node_take_object (node, facts);
    return json_to_string (node, TRUE);
}

static char *prune (EcfsPruning *self, const char *directory, GError **error)
{
    if (!begin (self, directory, error))
        return NULL;
    open_places (self);
    end_left_notes (self);
    self->past.times = &self->times;
    self->past.then_ns = self->times.now_ns - self->keep_us * 1000;
    if (!check_places (self, error) || !ecfs_prune_journal_choose (self, error) ||
        !ecfs_prune_tick (self, "the past", 0, 1, error) || !ecfs_prune_past_read (&self->past, directory, error) ||
        !check_past (self, error))
        return NULL;
    if (self->past.n_future > 0)
        tell (self,
              "%" PRIu64 " changes of the journal, the last of them %" PRIu64
              ", are from after endpoints got them by their own times, which do not count",
              self->past.n_future, self->past.future);
    g_autofree char *refusal = find_refusal (self);
    if (refusal != NULL && !self->what->dry_run) {
        (void) !ecfs_fail (error, ENOTRECOVERABLE, "%s", refusal);
        return NULL;
    }
    look_at_places (self);
    if (!check_places (self, error) || !look_for_old (self, error))
        return NULL;
    if (!self->what->dry_run && sum_up (self).n > 0 && (!may_remove (self, error) || !remove_all (self, error)))
        return NULL;
    return report (self, refusal);
}

char *ecfs_prune (const char *directory, const EcfsPrune *what, GError **error)
{
    EcfsPruning self = {.what = what};
    char *text = prune (&self, directory, error);
    for (size_t i = 0; i < self.n_places; i++)
        ecfs_prune_place_clear (&self.places[i]);
    g_free (self.places);
    ecfs_prune_past_clear (&self.past);
    ecfs_prune_journal_clear (&self.journal);
    ecfs_prune_times_clear (&self.times);
    ecfs_follow_end (self.follow);
    ecfs_archive_free (self.archive);
    return text;
}
