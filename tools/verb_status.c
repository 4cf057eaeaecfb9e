#include "page_status.h"

#include <inttypes.h>
#include <stdio.h>
#include <string.h>

#define BEHIND_TOLD  50000 /* changes, which are many for ecfs recover to read */
#define CHECK_BROKEN 2     /* what --check exits with where nothing can be read */

static char *rate (JsonObject *endpoint, const char *member)
{
    double bytes_per_s = tool_double (endpoint, member);
    if (bytes_per_s <= 0)
        return g_strdup ("-");
    g_autofree char *bytes = tool_bytes (bytes_per_s);
    return g_strdup_printf ("%s/s", bytes);
}

/* "1.2 ms, 95% 4.5 ms" */
static char *latency (JsonObject *endpoint)
{
    if (!json_object_has_member (endpoint, "latency_ms"))
        return g_strdup ("-");
    JsonObject *quantiles = json_object_get_object_member (endpoint, "latency_ms");
    g_autofree char *usual = tool_seconds (tool_double (quantiles, "p50") / 1000);
    g_autofree char *late = tool_seconds (tool_double (quantiles, "p95") / 1000);
    return g_strdup_printf ("%s, 95%% %s", usual, late);
}

static void add_header (GPtrArray *cells)
{
    static const char *const titles[] = {"ENDPOINT", "STATE", "ZONE", "READ", "WRITE", "LATENCY", "FREE", "URL"};
    for (size_t i = 0; i < G_N_ELEMENTS (titles); i++)
        tool_cell (cells, g_strdup (titles[i]));
}

static const char *state_of (JsonObject *endpoint)
{
    const char *state = tool_text (endpoint, "state");
    bool silent = g_str_equal (state, "active") && !json_object_get_boolean_member (endpoint, "connected");
    return silent ? "no answer yet" : state;
}

static void print_endpoints (JsonObject *status)
{
    JsonArray *endpoints = json_object_get_array_member (status, "endpoints");
    unsigned n = json_array_get_length (endpoints);
    bool believed = json_object_has_member (status, "old_copy") || json_object_has_member (status, "held");
    g_autoptr (GPtrArray) cells = g_ptr_array_new_with_free_func (g_free);
    add_header (cells);
    for (unsigned i = 0; i < n; i++) {
        JsonObject *endpoint = json_array_get_object_element (endpoints, i);
        tool_cell (cells, g_strdup (tool_text (endpoint, "name")));
        tool_cell (cells, g_strdup (state_of (endpoint)));
        tool_cell (cells, g_strdup (tool_text (endpoint, "zone")));
        tool_cell (cells, rate (endpoint, "read_bytes_per_s"));
        tool_cell (cells, rate (endpoint, "write_bytes_per_s"));
        tool_cell (cells, latency (endpoint));
        tool_cell (cells, json_object_has_member (endpoint, "free_bytes")
                              ? tool_bytes ((double) tool_number (endpoint, "free_bytes"))
                              : g_strdup ("-"));
        tool_cell (cells, g_strdup (tool_text (endpoint, "url")));
    }
    tool_table (cells, 8, "");
    for (unsigned i = 0; i < n; i++) {
        JsonObject *endpoint = json_array_get_object_element (endpoints, i);
        if (json_object_has_member (endpoint, "reason"))
            printf ("  %s\n", tool_text (endpoint, "reason"));
        if (json_object_has_member (endpoint, "key_share_lost"))
            printf ("  %s: %s\n", tool_text (endpoint, "name"), tool_text (endpoint, "key_share_lost"));
        if (json_object_has_member (endpoint, "disagrees"))
            printf ("  %s%s\n", tool_text (endpoint, "disagrees"),
                    believed ? "" : ", and too few others say so: if it lies, ecfs endpoint distrust");
        if (json_object_has_member (endpoint, "false_marker"))
            printf ("  %s, so it does not count: ecfs fsck -y writes it anew\n", tool_text (endpoint, "false_marker"));
    }
}

static void print_month (JsonObject *status)
{
    JsonArray *endpoints = json_object_get_array_member (status, "endpoints");
    g_autofree char *sum = tool_month_sum (status);
    const char *title = "month";
    for (guint i = 0; i < json_array_get_length (endpoints); i++) {
        JsonObject *endpoint = json_array_get_object_element (endpoints, i);
        g_autofree char *text = tool_month_text (endpoint);
        if (text == NULL)
            continue;
        printf ("%-10s %s: %s\n", title, tool_text (endpoint, "name"), text);
        title = "";
    }
    if (sum != NULL)
        printf ("%-10s %s in all, with a whole month of what is stored now\n", "", sum);
    if (json_object_has_member (status, "month_error"))
        printf ("%-10s not all of it is known: %s\n", title, tool_text (status, "month_error"));
}

static void print_objects (JsonObject *status)
{
    JsonObject *objects = json_object_get_object_member (status, "objects");
    int64_t content = tool_number (status, "content_bytes"), stored = tool_number (status, "stripe_bytes");
    g_autofree char *content_text = tool_bytes ((double) content);
    g_autofree char *stored_text = tool_bytes ((double) stored);
    printf ("files      %" PRIi64 " with %s", tool_number (status, "files"), content_text);
    if (content > 0)
        printf (", stored in %s, %.2f times the content", stored_text, (double) stored / (double) content);
    printf ("\nobjects    %" PRIi64 " full, %" PRIi64 " degraded, %" PRIi64 " unreadable\n",
            tool_number (objects, "full"), tool_number (objects, "degraded"), tool_number (objects, "unreadable"));
    if (!json_object_has_member (objects, "guarantee"))
        return;
    int64_t guarantee = tool_number (objects, "guarantee");
    if (guarantee > 0)
        printf ("guarantee  any %" PRIi64 " more endpoint%s may vanish now, and every stored file stays readable\n",
                guarantee, guarantee == 1 ? "" : "s");
    else if (guarantee == 0)
        puts ("guarantee  every stored file is readable now, but no further endpoint may vanish");
    else
        printf ("guarantee  none: %s\n", tool_unreadable_text (status));
}

static void print_row (JsonObject *row)
{
    double age = (double) g_get_real_time () / 1e6 - (double) tool_number (row, "since");
    g_autofree char *since = tool_seconds (MAX (age, 0));
    g_autofree char *path = tool_printable (tool_text (row, "path"));
    printf ("  %s: %s for %s\n", path, tool_text (row, "state"), since);
    if (json_object_has_member (row, "error"))
        printf ("    %s\n", tool_text (row, "error"));
}

static void print_staging (JsonObject *status)
{
    JsonObject *staging = json_object_get_object_member (status, "staging");
    int64_t n_files = tool_number (staging, "files"), n_too_large = tool_number (staging, "too_large");
    if (n_too_large > 0)
        printf ("changes    %" PRIi64 " times a file above rewrite_max was not changed in place (EFBIG)\n",
                n_too_large);
    if (n_files == 0) {
        puts ("staging    nothing waits");
        return;
    }
    g_autofree char *bytes = tool_bytes ((double) tool_number (staging, "bytes"));
    printf ("staging    %" PRIi64 " %s to be stored, with %s in staging; %" PRIi64 " had failures\n", n_files,
            n_files == 1 ? "file waits" : "files wait", bytes, tool_number (staging, "failed"));
    JsonArray *oldest = json_object_get_array_member (staging, "oldest");
    for (unsigned i = 0; i < json_array_get_length (oldest); i++)
        print_row (json_array_get_object_element (oldest, i));
    if (!json_object_get_boolean_member (status, "mounted"))
        puts ("  the archive is not mounted for writing: mount it for writing to store them");
}

/* What a copy has that another machine has taken over from. */
static void print_unstored (JsonObject *status)
{
    if (json_object_has_member (status, "unstored"))
        tool_print_unstored (json_object_get_object_member (status, "unstored"), "not stored before that");
}

/* Whether what is locked at an endpoint stays so. */
static void print_locks (JsonObject *row)
{
    JsonObject *locks = tool_part (row, "locks");
    if (locks == NULL)
        return;
    g_autofree char *time = tool_seconds ((double) tool_number (locks, "seconds"));
    printf ("locks      %s: for %s; ", tool_text (row, "endpoint"), time);
    if (tool_number (locks, "asked") + tool_number (locks, "refused") == 0)
        puts ("a mount renews them");
    else
        printf ("%" PRIi64 " files looked at, %" PRIi64 " renewed, %" PRIi64 " refused%s%s\n",
                tool_number (locks, "asked"), tool_number (locks, "renewed"), tool_number (locks, "refused"),
                json_object_has_member (locks, "error") ? ": " : "",
                json_object_has_member (locks, "error") ? tool_text (locks, "error") : "");
}

/* Of endpoints that do not delete. */
static void print_retained (JsonObject *status)
{
    JsonArray *rows =
        json_object_has_member (status, "retained") ? json_object_get_array_member (status, "retained") : NULL;
    for (guint i = 0; rows != NULL && i < json_array_get_length (rows); i++) {
        JsonObject *row = json_array_get_object_element (rows, i);
        g_autofree char *bytes = tool_bytes ((double) tool_number (row, "bytes"));
        g_autofree char *after =
            tool_seconds ((double) (json_object_has_member (row, "after") ? tool_number (row, "after") : 0));
        bool never = g_str_equal (tool_text (row, "delete"), "never");
        printf ("retained   %s: %" PRIi64 " stripes, %s (delete = %s%s)\n", tool_text (row, "endpoint"),
                tool_number (row, "stripes"), bytes, never ? "never" : "after ", never ? "" : after);
        print_locks (row);
    }
}

static void print_repairs (JsonObject *status)
{
    JsonObject *repairs = json_object_get_object_member (status, "repairs");
    int64_t n_queued = tool_number (repairs, "queued");
    if (n_queued == 0)
        return;
    const char *outlook =
        json_object_has_member (status, "read_only")         ? "whoever writes the archive repairs them"
        : !json_object_get_boolean_member (repairs, "auto")  ? "repair = off: ecfs-fsck -y repairs them"
        : json_object_get_boolean_member (status, "mounted") ? "the mount repairs them in the background"
                                                             : "the next mount repairs them";
    printf ("repairs    %" PRIi64 " damaged %s met by readers and queued; %s\n", n_queued,
            n_queued == 1 ? "stripe was" : "stripes were", outlook);
    JsonArray *stripes = json_object_get_array_member (repairs, "stripes");
    for (unsigned i = 0; i < json_array_get_length (stripes); i++) {
        JsonObject *stripe = json_array_get_object_element (stripes, i);
        g_autofree char *path = tool_printable (tool_text (stripe, "path"));
        g_autofree char *reason = tool_printable (tool_text (stripe, "reason"));
        printf ("  %s: stripe %" PRIi64 " %s: %s\n", path, tool_number (stripe, "stripe"), tool_text (stripe, "state"),
                reason);
    }
    if (json_object_has_member (repairs, "failure"))
        printf ("  tried again later: %s\n", tool_text (repairs, "failure"));
}

static char *clock_text (int64_t time_s)
{
    g_autoptr (GDateTime) now = g_date_time_new_now_local ();
    g_autoptr (GDateTime) then = g_date_time_new_from_unix_local (time_s);
    if (then == NULL)
        return g_strdup ("an unknown time");
    bool today = g_date_time_get_year (now) == g_date_time_get_year (then) &&
                 g_date_time_get_day_of_year (now) == g_date_time_get_day_of_year (then);
    return g_date_time_format (then, today ? "%T" : "%F %T");
}

/* Who waits to be told is not told where the command fails. */
static void print_events (JsonObject *status)
{
    JsonObject *events =
        json_object_has_member (status, "events") ? json_object_get_object_member (status, "events") : NULL;
    if (events == NULL)
        return;
    g_autofree char *time = clock_text (tool_number (events, "time"));
    g_autofree char *told = tool_printable (tool_text (events, "told"));
    printf ("events     on_event was last run at %s, for \"%s\"\n", time, told);
    if (json_object_has_member (events, "failure")) {
        g_autofree char *failure = tool_printable (tool_text (events, "failure"));
        g_autofree char *failed = clock_text (tool_number (events, "failed"));
        printf ("           it FAILED at %s: %s\n", failed, failure);
    }
}

static void print_interrupted (JsonObject *status)
{
    JsonArray *names = json_object_get_array_member (status, "interrupted");
    if (json_array_get_length (names) == 0)
        return;
    printf ("interrupted, in %s/interrupted: what was written and not flushed when a mount died\n",
            tool_text (status, "directory"));
    for (unsigned i = 0; i < json_array_get_length (names); i++) {
        g_autofree char *name = tool_printable (json_array_get_string_element (names, i));
        printf ("  %s\n", name);
    }
}

static void print_snapshot (JsonObject *point)
{
    int64_t n_behind = tool_number (point, "behind_snapshot");
    g_autofree char *time = clock_text (tool_number (point, "snapshot_time"));
    if (n_behind < BEHIND_TOLD)
        return;
    if (json_object_has_member (point, "snapshot_time"))
        printf ("           %" PRIi64 " changes since the snapshot of the catalog at %s", n_behind, time);
    else
        printf ("           there is no snapshot of the catalog, and %" PRIi64 " changes", n_behind);
    puts (": a mount of some minutes stores one when it is due");
}

static void print_follow (JsonObject *status)
{
    if (!json_object_has_member (status, "follow"))
        return;
    JsonObject *follow = json_object_get_object_member (status, "follow");
    g_autofree char *changed = clock_text (tool_number (follow, "changed_ns") / 1000000000);
    if (!json_object_get_boolean_member (follow, "lives"))
        printf ("follows    nothing now: it is not mounted; names are as of %s\n", changed);
    else
        printf ("follows    another machine, up to %s (change %" PRIi64 "); %" PRIi64 " of %" PRIi64
                " endpoints answered %" PRIi64 " s ago%s\n",
                changed, tool_number (follow, "sequence"), tool_number (follow, "endpoints_asked"),
                tool_number (follow, "endpoints"),
                MAX (g_get_real_time () / G_USEC_PER_SEC - tool_number (follow, "looked_s"), 0),
                json_object_get_boolean_member (follow, "sure") ? "" : ", too few to be sure that nothing is newer");
    if (json_object_has_member (follow, "trouble"))
        printf ("           %s\n", tool_text (follow, "trouble"));
}

static void print_recovery_point (JsonObject *status)
{
    JsonObject *point = json_object_get_object_member (status, "recovery_point");
    int64_t n_pending = tool_number (point, "pending");
    g_autofree char *time = clock_text (tool_number (point, "time"));
    if (json_object_has_member (status, "follow"))
        return; /* that is for who writes it */
    if (json_object_has_member (status, "read_only"))
        puts ("recovery   all that is known here came from the endpoints: nothing is only on this machine");
    else if (json_object_has_member (status, "old_copy"))
        printf ("recovery   %s\n", tool_text (status, "old_copy"));
    else if (json_object_has_member (status, "held"))
        printf ("recovery   %s\n", tool_text (status, "held"));
    else if (n_pending == 0)
        puts ("recovery   every name and attribute is safe without this machine");
    else if (tool_number (point, "sequence") == 0)
        printf ("recovery   no name is safe without this machine yet: %" PRIi64 " %s only here\n", n_pending,
                n_pending == 1 ? "change is" : "changes are");
    else
        printf ("recovery   every name and attribute up to %s is safe without this machine, %" PRIi64 " %s not\n", time,
                n_pending, n_pending == 1 ? "change since is" : "changes since are");
    print_snapshot (point);
}

static void print_scrub (JsonObject *status)
{
    JsonObject *scrub = json_object_get_object_member (status, "scrub");
    g_autofree char *ended = clock_text (tool_number (scrub, "full_ended"));
    g_autofree char *began = clock_text (tool_number (scrub, "began"));
    if (json_object_has_member (scrub, "full_ended"))
        printf ("scrub      everything was last verified at %s", ended);
    else
        fputs ("scrub      not everything was verified yet (ecfs-fsck --deep does it)", stdout);
    if (json_object_has_member (scrub, "open") && json_object_get_boolean_member (scrub, "open"))
        printf ("; one begun at %s has reached %.1f%%", began, tool_double (scrub, "verified") * 100);
    puts ("");
    if (tool_number (scrub, "damaged") > 0)
        printf ("           %" PRIi64 " stripes are damaged: ecfs-fsck -y --deep repairs what it can\n",
                tool_number (scrub, "damaged"));
}

static void print_policy (JsonObject *status)
{
    JsonObject *policy = json_object_get_object_member (status, "policy");
    int64_t n_files = tool_number (policy, "files");
    g_autofree char *bytes = tool_bytes (tool_double (policy, "content_bytes"));
    if (json_object_has_member (policy, "error"))
        printf ("policy     it cannot be followed: %s\n", tool_text (policy, "error"));
    else if (!json_object_has_member (policy, "files"))
        printf ("policy     'ecfs policy -n %s' tells what waits to be moved\n", tool_text (status, "directory"));
    else if (n_files == 0)
        puts ("policy     no file waits to be moved to another code");
    else
        printf ("policy     %" PRIi64 " %s to be moved to another code, %s: 'ecfs policy %s' does it\n", n_files,
                n_files == 1 ? "file waits" : "files wait", bytes, tool_text (status, "directory"));
}

static char *clock_time (double seconds);

/* What is wrong and since when; what that means; what to do. */
static void print_verdict (JsonObject *status)
{
    JsonArray *problems = json_object_get_array_member (status, "problems");
    g_autofree char *verdict = g_ascii_strup (tool_text (status, "verdict"), -1);
    g_autofree char *reason = tool_printable (tool_text (status, "reason"));
    int64_t since = tool_number (status, "since");
    if (since > 0) {
        g_autofree char *when = clock_time ((double) since);
        double seconds = (double) g_get_real_time () / 1e6 - (double) since;
        g_autofree char *age = seconds < 2 ? g_strdup ("just now") : tool_seconds (seconds);
        printf ("state      %s since %s (%s%s)\n", verdict, when, age, seconds < 2 ? "" : " ago");
    } else {
        printf ("state      %s\n", verdict);
    }
    printf ("reason     %s\n           %s\n", reason, tool_text (status, "meaning"));
    printf ("action     %s\n", tool_text (status, "advice"));
    if (json_object_has_member (status, "action"))
        printf ("           %s\n", tool_text (status, "action"));
    for (guint i = 0; problems != NULL && i < json_array_get_length (problems); i++) {
        JsonObject *problem = json_array_get_object_element (problems, i);
        if (strcmp (tool_text (problem, "reason"), tool_text (status, "reason")) == 0)
            continue;
        g_autofree char *other = tool_printable (tool_text (problem, "reason"));
        printf ("also       %s\n           %s %s\n", other, tool_text (problem, "advice"),
                tool_text (problem, "action"));
    }
    puts ("");
}

static const char *mounted_text (JsonObject *status)
{
    return json_object_get_boolean_member (status, "mounted") ? "mounted"
           : tool_follows (status)                            ? "mounted, following (the endpoints were asked now)"
           : json_object_has_member (status, "silent_mount")  ? "mounted, without an answer (the endpoints were asked)"
                                                              : "not mounted (the endpoints were asked now)";
}

/* What who has an endpoint can read there, from before there was a key. */
static void print_open (const char *directory, JsonObject *open)
{
    g_autofree char *bytes = tool_bytes ((double) tool_number (open, "content_bytes"));
    int64_t n_objects = tool_number (open, "objects"), n_files = tool_number (open, "journal_files");
    int64_t n_unknown = tool_number (open, "endpoints_unknown"), n_stripes = tool_number (open, "retained_stripes");
    if (n_objects > 0)
        printf ("open       %" PRIi64
                " objects with %s are stored without the key: 'ecfs recode --seal %s' moves them\n",
                n_objects, bytes, directory);
    if (n_files > 0)
        printf ("open       %" PRIi64 " files of the journal from before the key are left at endpoints\n", n_files);
    if (n_unknown > 0)
        printf ("open       %" PRIi64 " endpoints may have files of the journal from before the key\n", n_unknown);
    if (tool_number (open, "stray_stripes") > 0)
        printf ("open       %" PRIi64
                " stripes from before the key are left at endpoints: 'ecfs fsck --prune %s' removes "
                "them\n",
                tool_number (open, "stray_stripes"), directory);
    if (n_stripes > 0) {
        g_autofree char *when = clock_time ((double) tool_number (open, "retained_until"));
        printf ("open       %" PRIi64 " stripes of what had no key can be read until %s at least\n", n_stripes, when);
    }
}

/* By the slots that are left: what brings the key back, and what fewer zones than that can do. */
static void print_sharing (JsonObject *key)
{
    g_autofree char *with = tool_key_openers (key, false), *less = tool_key_openers (key, true);
    bool shared = tool_key_has (key, "split") || tool_key_has (key, "passphrase");
    int64_t n_zones = tool_number (key, "zones"), needed = tool_number (key, "needed");
    if (shared)
        printf ("key        shared by %" PRIi64 " zones, any %" PRIi64
                " of which bring it back%s and fewer read nothing%s%s",
                n_zones, needed, tool_key_has (key, "split") ? "" : " with the passphrase",
                less == NULL ? "" : " without ", less == NULL ? "" : less);
    else
        printf ("key        in key files of %" PRIi64 " zones, any %" PRIi64
                " of which brings it back with %s (ecfs key list)",
                n_zones, needed, with);
    printf ("; here now: %" PRIi64 "\n", tool_number (key, "here"));
}

static bool opens_nothing (JsonObject *key)
{
    return json_object_has_member (key, "slots") &&
           json_array_get_length (json_object_get_array_member (key, "slots")) == 0;
}

static void print_retired (JsonObject *status)
{
    if (json_object_has_member (status, "read_only"))
        return; /* that is for who writes it */
    if (tool_number (status, "retired_objects") > 0) {
        g_autofree char *bytes = tool_bytes ((double) tool_number (status, "retired_bytes"));
        printf ("retired    %" PRIi64 " objects with %s are under keys before: 'ecfs recode --seal %s' moves them\n",
                tool_number (status, "retired_objects"), bytes, tool_text (status, "directory"));
    }
    if (tool_number (status, "retired_stripes") > 0) {
        g_autofree char *when = clock_time ((double) tool_number (status, "retired_until"));
        printf ("retired    %" PRIi64
                " stripes of what was under keys before can be read with these until %s at least\n",
                tool_number (status, "retired_stripes"), when);
    }
}

static void print_key (JsonObject *status)
{
    bool can_mend = !json_object_has_member (status, "read_only");
    if (can_mend && json_object_has_member (status, "key_begun"))
        puts ("key        'ecfs key init' was interrupted, and nothing can be stored: run it again");
    if (can_mend && json_object_has_member (status, "key_rotates"))
        puts ("key        'ecfs key rotate' was interrupted, and nothing can be stored: run it again");
    if (!json_object_has_member (status, "key"))
        return;
    JsonObject *key =
        json_object_has_member (status, "key_sharing") ? json_object_get_object_member (status, "key_sharing") : NULL;
    if (key != NULL && !opens_nothing (key)) {
        print_sharing (key);
    } else if (tool_number (status, "key_shares") > 0) { /* the mount is of an earlier ecfs */
        printf ("key        shared: %" PRIi64 " zones of endpoints bring it back, fewer read nothing\n",
                tool_number (status, "key_shares"));
    } else {
        printf ("key        nothing comes back without the file %s/key: keep a copy elsewhere\n",
                tool_text (status, "directory"));
    }
    print_retired (status);
    if (json_object_has_member (status, "open"))
        print_open (tool_text (status, "directory"), json_object_get_object_member (status, "open"));
    else if (json_object_has_member (status, "sealed") && json_object_get_boolean_member (status, "sealed"))
        puts ("sealed     all that is stored is under the key");
}

static void print_cache (JsonObject *status)
{
    if (!json_object_has_member (status, "cache"))
        return;
    JsonObject *cache = json_object_get_object_member (status, "cache");
    JsonObject *reads = json_object_get_object_member (status, "reads");
    double cached = (double) tool_number (reads, "cached_bytes"),
           received = (double) tool_number (reads, "received_bytes");
    g_autofree char *bytes = tool_bytes ((double) tool_number (cache, "bytes"));
    g_autofree char *max = tool_bytes ((double) tool_number (cache, "max_bytes"));
    printf ("cache      %s of %s", bytes, max);
    if (tool_number (cache, "pinned_bytes") > 0) {
        g_autofree char *pinned = tool_bytes ((double) tool_number (cache, "pinned_bytes"));
        printf (", %s of it pinned", pinned);
    }
    if (tool_knows_reads (status) && cached + received > 0)
        printf ("; %.0f%% of what was read since the mount came from it", 100 * cached / (cached + received));
    puts ("");
    if (json_object_has_member (cache, "trouble"))
        printf ("           nothing is added to it for now: %s\n", tool_text (cache, "trouble"));
}

static void print_peer (JsonArray *array, guint index, JsonNode *node, void *user)
{
    (void) array, (void) index, (void) user;
    JsonObject *peer = json_node_get_object (node);
    if (json_object_has_member (peer, "problem"))
        printf ("           %s: %s\n", tool_text (peer, "address"), tool_text (peer, "problem"));
}

static void count_up (JsonArray *array, guint index, JsonNode *node, void *user)
{
    (void) array, (void) index;
    *(unsigned *) user += strcmp (tool_text (json_node_get_object (node), "state"), "up") == 0;
}

/* Only who has read or served anything has met them. */
static void print_peers (JsonObject *status)
{
    unsigned n_up = 0;
    if (!json_object_has_member (status, "peers") || !tool_knows_reads (status))
        return;
    JsonObject *peers = json_object_get_object_member (status, "peers");
    JsonArray *list = json_object_get_array_member (peers, "list");
    json_array_foreach_element (list, count_up, &n_up);
    g_autofree char *fetched = tool_bytes ((double) tool_number (peers, "fetched_bytes"));
    g_autofree char *served = tool_bytes ((double) tool_number (peers, "served_bytes"));
    printf ("peers      %u of %u up, %s came from them, %s went to them\n", n_up, json_array_get_length (list), fetched,
            served);
    json_array_foreach_element (list, print_peer, NULL);
}

/* There is none where the mount is of an earlier ecfs. */
static void print_published (JsonObject *status)
{
    JsonArray *names =
        json_object_has_member (status, "published") ? json_object_get_array_member (status, "published") : NULL;
    guint n = names == NULL ? 0 : json_array_get_length (names);
    for (guint i = 0; i < n; i++)
        printf ("%s%s%s", i == 0 ? "published  " : ", ", json_array_get_string_element (names, i),
                i + 1 == n ? "\n" : "");
}

static void print_catalog (JsonObject *status)
{
    if (json_object_has_member (status, "catalog_error"))
        printf ("catalog    %s\n", tool_text (status, "catalog_error"));
    if (json_object_has_member (status, "catalog_away_since_s")) {
        g_autoptr (GDateTime) since = g_date_time_new_from_unix_local (tool_number (status, "catalog_away_since_s"));
        g_autofree char *text = since == NULL ? NULL : g_date_time_format (since, "%F %T");
        printf ("           away since %s; more is told when it is back\n", text == NULL ? "some time ago" : text);
    }
}

static void print_status (JsonObject *status)
{
    print_verdict (status);
    printf ("%s  archive %s, %s, new files %s\n\n", tool_text (status, "directory"), tool_text (status, "archive"),
            mounted_text (status), tool_text (status, "code"));
    if (json_object_has_member (status, "catalog_away_since_s")) { /* nothing else is known */
        print_catalog (status);
        return;
    }
    print_endpoints (status);
    puts ("");
    print_objects (status);
    if (json_object_has_member (status, "free_bytes")) {
        g_autofree char *free_bytes = tool_bytes ((double) tool_number (status, "free_bytes"));
        if (tool_number (status, "free_bytes") > 0)
            printf ("room       for %s more\n", free_bytes);
        else
            puts ("room       none: endpoints are full, or too few answer for new files");
    } else {
        puts ("room       not known yet: endpoints that take new files have not said how much they have");
    }
    print_month (status);
    print_cache (status);
    print_peers (status);
    print_published (status);
    print_catalog (status);
    print_key (status);
    tool_print_history (status);
    if (tool_number (status, "deletions") > 0)
        printf ("deletions  %" PRIi64 " stripes wait to be deleted%s%s\n", tool_number (status, "deletions"),
                json_object_has_member (status, "deletions_wait") ? ": " : "", tool_text (status, "deletions_wait"));
    print_retained (status);
    print_repairs (status);
    print_recovery_point (status);
    print_follow (status);
    if (json_object_has_member (status, "scrub")) /* not where the mount is of an earlier ecfs */
        print_scrub (status);
    if (json_object_has_member (status, "policy"))
        print_policy (status);
    print_staging (status);
    print_unstored (status);
    print_events (status);
    print_interrupted (status);
}

static char *clock_time (double seconds)
{
    g_autoptr (GDateTime) time = g_date_time_new_from_unix_local ((gint64) seconds);
    return time == NULL ? g_strdup ("?") : g_date_time_format (time, "%F %T");
}

static void print_erasure (JsonObject *erasure)
{
    int64_t n_segments = tool_number (erasure, "segments");
    double begin = tool_double (erasure, "begin");
    g_autofree char *when = clock_time (begin);
    g_autofree char *lasted = tool_seconds (tool_double (erasure, "end") - begin);
    printf ("  %s  %s: %s for %s, %" PRIi64 " %s read around it", when, tool_text (erasure, "endpoint"),
            tool_text (erasure, "why"), lasted, n_segments, n_segments == 1 ? "segment" : "segments");
    if (json_object_has_member (erasure, "saved_s")) {
        g_autofree char *saved = tool_seconds (tool_double (erasure, "saved_s"));
        printf ("; one would have waited %s more", saved);
    }
    puts ("");
}

static void print_explanation (JsonObject *status)
{
    JsonObject *reads = json_object_get_object_member (status, "reads");
    JsonArray *erasures = json_object_get_array_member (reads, "erasures");
    g_autofree char *received = tool_bytes ((double) tool_number (reads, "received_bytes"));
    g_autofree char *hedged = tool_bytes ((double) tool_number (reads, "hedged_bytes"));
    if (!tool_knows_reads (status)) {
        puts ("reads      no mount tells: nothing is known of reads");
        return;
    }
    printf ("reads      %" PRIi64 " segments, %" PRIi64 " decoded from parity, %" PRIi64 " around erased endpoints\n",
            tool_number (reads, "segments"), tool_number (reads, "decoded"), tool_number (reads, "degraded"));
    printf ("           %s received, %s of hedges not needed in the end, %" PRIi64 " requests cancelled\n", received,
            hedged, tool_number (reads, "cancelled"));
    unsigned n = json_array_get_length (erasures);
    puts (n == 0 ? "erased     no endpoint was treated as erased" : "erased     endpoints treated as erased recently:");
    for (unsigned i = 0; i < n; i++)
        print_erasure (json_array_get_object_element (erasures, i));
}

static void print_losses (JsonObject *losses)
{
    JsonArray *unsafe = json_object_get_array_member (losses, "unsafe");
    int64_t n_unsafe = tool_number (losses, "endpoints_unsafe") + tool_number (losses, "pairs_unsafe");
    if (n_unsafe == 0)
        printf ("losses     any %s more may vanish\n",
                tool_number (losses, "pairs") > 0 ? "two endpoints" : "endpoint");
    for (guint i = 0; i < json_array_get_length (unsafe); i++) {
        JsonObject *loss = json_array_get_object_element (unsafe, i);
        JsonArray *names = json_object_get_array_member (loss, "without");
        bool is_pair = json_array_get_length (names) > 1;
        printf ("%s without %s%s%s: %" PRIi64 " objects could not be read\n", i == 0 ? "losses    " : "          ",
                json_array_get_string_element (names, 0), is_pair ? " and " : "",
                is_pair ? json_array_get_string_element (names, 1) : "", tool_number (loss, "objects"));
    }
    if (n_unsafe > json_array_get_length (unsafe))
        printf ("           and %" PRIi64 " more pairs\n", n_unsafe - json_array_get_length (unsafe));
}

static void print_survey (JsonObject *survey)
{
    JsonArray *files = json_object_get_array_member (survey, "files");
    for (guint i = 0; i < json_array_get_length (files); i++) {
        JsonObject *row = json_array_get_object_element (files, i);
        g_autofree char *bytes = tool_bytes ((double) tool_number (row, "bytes"));
        int64_t guarantee = tool_number (row, "guarantee");
        printf ("%s %" PRIi64 " files with %s are %s", i == 0 ? "survey    " : "          ", tool_number (row, "files"),
                bytes, tool_text (row, "state"));
        if (guarantee >= 0)
            printf (": %" PRIi64 " more endpoint%s may vanish", guarantee, guarantee == 1 ? "" : "s");
        puts ("");
    }
    if (json_object_has_member (survey, "losses"))
        print_losses (json_object_get_object_member (survey, "losses"));
    else
        puts ("losses     there are too many pairs to try: ecfs drill");
}

/* The archive cannot be opened: that is the state. */
static int tell_broken (const Verb *verb, const char *directory, GError *error, const char *html, bool json, bool check)
{
    GError *failure = NULL;
    g_autofree char *text = ecfs_diagnose (directory, error);
    g_autoptr (JsonObject) status = tool_json_object (text);
    if (json)
        puts (text);
    tool_say (verb->name, "%s", tool_text (status, "reason"));
    tool_say (verb->name, "state BROKEN: %s", tool_text (status, "meaning"));
    tool_say (verb->name, "%s%s%s", tool_text (status, "advice"), json_object_has_member (status, "action") ? " " : "",
              tool_text (status, "action"));
    g_error_free (error);
    if (html != NULL && !page_status_broken (status, html, &failure))
        return tool_fail (verb->name, failure, TOOL_FAILED);
    return check ? CHECK_BROKEN : TOOL_FAILED;
}

int verb_status (const Verb *verb, int argc, char **argv)
{
    g_autofree char *html = NULL;
    gboolean json = FALSE, explain = FALSE, check = FALSE, survey = FALSE;
    const GOptionEntry options[] = {
        {"explain", 0, 0, G_OPTION_ARG_NONE, &explain, "Also show which endpoints reading treated as erased, and why",
         NULL},
        {"check", 0, 0, G_OPTION_ARG_NONE, &check,
         "Exit with 0 when all is fine, 1 when it is degraded, 2 when files are unreadable or at risk", NULL},
        {"json", 0, 0, G_OPTION_ARG_NONE, &json, "Print a JSON object", NULL},
        {"html", 0, 0, G_OPTION_ARG_FILENAME, &html, "Write a page for people to this file, and print nothing", "FILE"},
        {"survey", 0, 0, G_OPTION_ARG_NONE, &survey,
         "Also walk all files: how safe they are, and which pairs of endpoints may not vanish", NULL},
        G_OPTION_ENTRY_NULL};
    (void) tool_parse (verb, options, argc, argv, 1, 1);
    GError *error = NULL;
    g_autofree char *directory = tool_archive (argv[1]);
    g_autoptr (Ecfs) ecfs = ecfs_open (directory, 0, &error);
    survey = survey || html != NULL;
    g_autofree char *text = ecfs == NULL ? NULL : survey ? ecfs_survey (ecfs, &error) : ecfs_status (ecfs, &error);
    if (text == NULL && (text = ecfs_status_of_mount (directory, NULL)) != NULL)
        g_clear_error (&error); /* it has what cannot be opened now */
    if (text == NULL)
        return tell_broken (verb, directory, error, html, json, check);
    g_autoptr (JsonObject) status = tool_json_object (text);
    int result = check ? (int) tool_number (status, "check") : TOOL_DONE;
    if (html != NULL && !page_status (status, html, &error))
        return tool_fail (verb->name, error, TOOL_FAILED);
    if (json)
        puts (text);
    if (json || html != NULL)
        return result;
    print_status (status);
    if (json_object_has_member (status, "survey"))
        print_survey (json_object_get_object_member (status, "survey"));
    if (explain)
        print_explanation (status);
    return result;
}
