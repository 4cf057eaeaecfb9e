/* endpoint readonly, active, distrust, drain, replace, remove */
#include "tool.h"

#include <inttypes.h>
#include <stdio.h>
#include <string.h>

static const Verb readonly_verb = {"endpoint readonly", "ARCHIVE NAME", "Keeps new stripes away from an endpoint",
                                   NULL};
static const Verb active_verb = {"endpoint active", "ARCHIVE NAME", "Lets an endpoint take new stripes again", NULL};
static const Verb distrust_verb = {"endpoint distrust", "ARCHIVE NAME", "Believes nothing that an endpoint says", NULL};
static const Verb drain_verb = {"endpoint drain", "ARCHIVE NAME", "Moves all that an endpoint holds to others", NULL};
static const Verb replace_verb = {"endpoint replace", "ARCHIVE OLD [[NAME=]URL[,KEY=VALUE...]...]",
                                  "Rebuilds what an endpoint held on others, or on itself after it was emptied", NULL};
static const Verb remove_verb = {"endpoint remove", "ARCHIVE NAME", "Takes an empty endpoint out of an archive", NULL};

static int set_state (const Verb *verb, const char *state, int argc, char **argv)
{
    GError *error = NULL;
    (void) tool_parse (verb, NULL, argc, argv, 2, 2);
    g_autoptr (Ecfs) ecfs = ecfs_open (argv[1], ECFS_OPEN_WRITE | ECFS_OPEN_LEAD, &error);
    if (ecfs == NULL || !ecfs_set_endpoint_state (ecfs, argv[2], state, &error))
        return tool_fail (verb->name, error, TOOL_FAILED);
    return TOOL_DONE;
}

static int set_readonly (int argc, char **argv)
{
    return set_state (&readonly_verb, "readonly", argc, argv);
}

static int set_active (int argc, char **argv)
{
    return set_state (&active_verb, "active", argc, argv);
}

/* Who had a share of the key, and is not to have one any more. */
static void hint_at_key (Ecfs *ecfs, const char *directory, const char *name)
{
    g_autofree char *text = ecfs_key_list (ecfs, NULL); /* NULL: it has none */
    g_autoptr (JsonObject) key = text == NULL ? NULL : tool_json_object (text);
    if (key != NULL && tool_number (key, "threshold") > 0)
        printf ("Endpoint %s may keep its share of the archive's key: 'ecfs key rotate %s' gives another key.\n", name,
                directory);
}

static int set_distrust (int argc, char **argv)
{
    gboolean undo = FALSE;
    const GOptionEntry options[] = {{"undo", 0, 0, G_OPTION_ARG_NONE, &undo, "Believe it again", NULL},
                                    G_OPTION_ENTRY_NULL};
    GError *error = NULL;
    (void) tool_parse (&distrust_verb, options, argc, argv, 2, 2);
    if (!ecfs_distrust_endpoint (argv[1], argv[2], undo, &error))
        return tool_fail (distrust_verb.name, error, TOOL_FAILED);
    g_autoptr (Ecfs) ecfs = undo ? NULL : ecfs_open (argv[1], 0, NULL);
    if (ecfs != NULL)
        hint_at_key (ecfs, argv[1], argv[2]);
    return TOOL_DONE;
}

/* The plan */

static void print_targets (JsonObject *plan)
{
    JsonArray *targets = json_object_get_array_member (plan, "targets");
    for (guint i = 0; i < json_array_get_length (targets); i++) {
        JsonObject *target = json_array_get_object_element (targets, i);
        g_autofree char *bytes = tool_bytes ((double) tool_number (target, "written_bytes"));
        printf ("%s%s %s", i == 0 ? "  to       " : ", ", tool_text (target, "name"), bytes);
    }
    if (json_array_get_length (targets) > 0)
        putchar ('\n');
}

static void print_stuck (JsonObject *plan)
{
    JsonArray *paths = json_object_get_array_member (plan, "unplaced_paths");
    int64_t n_stuck = tool_number (plan, "unplaced_objects");
    if (n_stuck == 0)
        return;
    printf ("  stuck    %" PRIi64
            " objects have no other endpoint to go to: add one with 'ecfs endpoint add', or make room\n",
            n_stuck);
    for (guint i = 0; i < json_array_get_length (paths); i++) {
        g_autofree char *path = tool_printable (json_array_get_string_element (paths, i));
        printf ("           %s\n", path);
    }
}

static void print_plan (JsonObject *plan)
{
    g_autofree char *bytes = tool_bytes ((double) tool_number (plan, "bytes"));
    printf ("endpoint %s%s\n", tool_text (plan, "endpoint"),
            json_object_get_boolean_member (plan, "reachable") ? "" : ", which does not answer");
    printf ("  objects  %" PRIi64 " with %" PRIi64 " stripes, %s\n", tool_number (plan, "objects"),
            tool_number (plan, "stripes"), bytes);
    if (tool_number (plan, "rebuilt_bytes") > 0) {
        g_autofree char *read = tool_bytes ((double) tool_number (plan, "rebuild_read_bytes"));
        printf ("  rebuilt  all, from about %s on the others\n", read);
    }
    if (tool_number (plan, "endangered_objects") > 0)
        printf ("  first    %" PRIi64 " objects that are less safe than they should be\n",
                tool_number (plan, "endangered_objects"));
    if (tool_number (plan, "lost_past_objects") > 0)
        printf ("  lost     %" PRIi64 " objects of the history, which cannot be rebuilt without it\n",
                tool_number (plan, "lost_past_objects"));
    print_targets (plan);
    if (json_object_has_member (plan, "seconds")) {
        g_autofree char *time = tool_seconds (tool_double (plan, "seconds"));
        const char *slowest = tool_text (plan, "slowest");
        printf ("  time     about %s%s%s\n", time, *slowest == '\0' ? "" : ", by the measured speed of endpoint ",
                slowest);
    }
    tool_print_cost (plan, "  cost     ");
    print_stuck (plan);
}

/* Tells what is to be done; *ret_bytes. */
static bool tell_plan (Ecfs *ecfs, const char *name, const char *const *towards, bool json, uint64_t *ret_bytes,
                       GError **error)
{
    g_autofree char *text = ecfs_drain_plan (ecfs, name, towards, error);
    if (text == NULL)
        return false;
    g_autoptr (JsonObject) plan = tool_json_object (text);
    *ret_bytes = (uint64_t) tool_number (plan, "bytes");
    if (json)
        puts (text);
    else
        print_plan (plan);
    (void) fflush (stdout); /* the work takes long; who cannot read it learns at the end */
    return true;
}

/* Draining */

static int move_all (const Verb *verb, Ecfs *ecfs, const char *name, const char *const *towards, uint64_t bytes)
{
    GError *error = NULL;
    ToolTransfer transfer;
    tool_transfer_begin (&transfer, verb->name);
    transfer.things = "objects";
    transfer.bytes_all = bytes;
    transfer.all_found = true;
    transfer.resume = tool_command (NULL);
    (void) ecfs_drain (ecfs, name, towards, &transfer.transfer, &error); /* the error says it */
    return tool_transfer_end (&transfer, error);
}

static int drain (int argc, char **argv)
{
    gboolean dry_run = FALSE, json = FALSE;
    const GOptionEntry options[] = {
        {"dry-run", 'n', 0, G_OPTION_ARG_NONE, &dry_run, "Only show what would be moved", NULL},
        {"json", 0, 0, G_OPTION_ARG_NONE, &json, "Print what is to be moved as a JSON object", NULL},
        G_OPTION_ENTRY_NULL};
    (void) tool_parse (&drain_verb, options, argc, argv, 2, 2);
    GError *error = NULL;
    uint64_t bytes;
    g_autoptr (Ecfs) ecfs = ecfs_open (argv[1], dry_run ? 0 : ECFS_OPEN_WRITE | ECFS_OPEN_LEAD, &error);
    if (ecfs == NULL || !tell_plan (ecfs, argv[2], NULL, json, &bytes, &error))
        return tool_fail (drain_verb.name, error, TOOL_FAILED);
    return dry_run ? TOOL_DONE : move_all (&drain_verb, ecfs, argv[2], NULL, bytes);
}

/* Removing */

static int take_out (const Verb *verb, Ecfs *ecfs, const char *name)
{
    GError *error = NULL;
    g_autofree char *left = NULL;
    if (!ecfs_remove_endpoint (ecfs, name, &left, &error))
        return tool_fail (verb->name, error, TOOL_FAILED);
    if (left != NULL)
        tool_say (verb->name, "endpoint %s was taken out; %s", name, left);
    return TOOL_DONE;
}

static int take_out_one (int argc, char **argv)
{
    GError *error = NULL;
    (void) tool_parse (&remove_verb, NULL, argc, argv, 2, 2);
    g_autoptr (Ecfs) ecfs = ecfs_open (argv[1], ECFS_OPEN_WRITE | ECFS_OPEN_LEAD, &error);
    if (ecfs == NULL)
        return tool_fail (remove_verb.name, error, TOOL_FAILED);
    int status = take_out (&remove_verb, ecfs, argv[2]);
    if (status == TOOL_DONE)
        hint_at_key (ecfs, argv[1], argv[2]);
    return status;
}

/* Replacing */

/* All are understood before the first is added. */
static GStrv names_of (char **texts, GError **error)
{
    g_autoptr (GStrvBuilder) names = g_strv_builder_new ();
    for (; *texts != NULL; texts++) {
        g_autofree char *name = ecfs_parse_endpoint (*texts, error);
        if (name == NULL)
            return NULL;
        g_strv_builder_add (names, name);
    }
    return g_strv_builder_end (names);
}

/* NULL: there is none. */
static JsonObject *find (JsonArray *endpoints, const char *name)
{
    for (guint i = 0; i < json_array_get_length (endpoints); i++) {
        JsonObject *endpoint = json_array_get_object_element (endpoints, i);
        if (strcmp (tool_text (endpoint, "name"), name) == 0)
            return endpoint;
    }
    return NULL;
}

/* What takes its place is in the same zone: rules name it, and it has a share of the key. NULL: a zone of its own. */
static char *zone_of (JsonArray *endpoints, JsonObject *old)
{
    const char *zone = tool_text (old, "zone");
    bool is_own = strcmp (zone, tool_text (old, "name")) == 0;
    for (guint i = 0; is_own && i < json_array_get_length (endpoints); i++) {
        JsonObject *other = json_array_get_object_element (endpoints, i);
        is_own = other == old || strcmp (tool_text (other, "zone"), zone) != 0;
    }
    return is_own ? NULL : g_strdup (zone);
}

/* Before anything is changed: that there is an endpoint to be replaced, and its zone_of (); or *ret_done, where a
 * replacing that was killed had come to its end: the endpoint was taken out, and the others are there. */
static bool check_old (const char *directory, const char *name, GStrv by, char **ret_zone, bool *ret_done,
                       GError **error)
{
    g_autofree char *text = ecfs_list_endpoints (directory, error);
    if (text == NULL)
        return false;
    g_autoptr (JsonArray) endpoints = tool_json_array (text);
    JsonObject *old = find (endpoints, name);
    if (old != NULL) {
        *ret_zone = zone_of (endpoints, old);
        return true;
    }
    if (!ecfs_endpoint_was_removed (directory, name, ret_done, error))
        return false;
    for (; *ret_done && *by != NULL; by++)
        *ret_done = find (endpoints, *by) != NULL;
    return *ret_done || tool_error (error, ENOENT, "%s has no endpoint %s: 'ecfs endpoint list' shows those it has",
                                    directory, name);
}

/* @zone: for those that are given none; NULL: each is a zone of its own. */
static bool add_new (const char *directory, char **texts, GStrv names, const char *zone, GError **error)
{
    for (; *texts != NULL; texts++, names++) {
        bool takes = zone != NULL && strstr (*texts, ",zone=") == NULL;
        g_autofree char *text = takes ? g_strconcat (*texts, ",zone=", zone, NULL) : g_strdup (*texts);
        if (!ecfs_add_endpoint (directory, text, error))
            return false;
        if (takes)
            printf ("%s is in the zone %s; ,zone=ZONE behind its URL says another\n", *names, zone);
    }
    return true;
}

/* The same place, which was emptied: as `zpool replace POOL DEVICE`. */
static int renew (const char *directory, const char *name)
{
    GError *error = NULL;
    g_autofree char *old = NULL;
    const char *towards[] = {name, NULL};
    uint64_t bytes;
    g_autoptr (Ecfs) ecfs = ecfs_open (directory, ECFS_OPEN_WRITE | ECFS_OPEN_LEAD, &error);
    if (ecfs == NULL || !ecfs_renew_endpoint (ecfs, name, &old, &error)) {
        if (!g_error_matches (error, ECFS_ERROR, EALREADY))
            return tool_fail (replace_verb.name, error, TOOL_FAILED);
        tool_say (replace_verb.name, "%s", error->message);
        g_error_free (error);
        return TOOL_DONE;
    }
    ecfs_close (g_steal_pointer (&ecfs)); /* beside a mount what was read of the catalog is no longer so */
    ecfs = ecfs_open (directory, ECFS_OPEN_WRITE | ECFS_OPEN_LEAD, &error);
    if (ecfs == NULL || !tell_plan (ecfs, old, towards, false, &bytes, &error))
        return tool_fail (replace_verb.name, error, TOOL_FAILED);
    int status = move_all (&replace_verb, ecfs, old, towards, bytes);
    return status != TOOL_DONE ? status : take_out (&replace_verb, ecfs, old);
}

/* Before anything is moved: what rules allow is where it goes. What was read of the catalog before is no longer so. */
static bool replace_in_rules (Ecfs **ecfs, const char *directory, const char *old, GStrv names, GError **error)
{
    uint64_t n;
    if (!ecfs_replace_in_rules (*ecfs, old, (const char *const *) names, &n, error))
        return false;
    if (n == 0)
        return true;
    g_autofree char *by = g_strjoinv (" and ", names);
    printf ("%" PRIu64 " %s user.ecfs.places that named %s %s %s now\n", n, n == 1 ? "rule" : "rules", old,
            n == 1 ? "names" : "name", by);
    ecfs_close (g_steal_pointer (ecfs));
    return (*ecfs = ecfs_open (directory, ECFS_OPEN_WRITE | ECFS_OPEN_LEAD, error)) != NULL;
}

static int replace (int argc, char **argv)
{
    argc = tool_parse (&replace_verb, NULL, argc, argv, 2, G_MAXINT);
    if (argc == 3)
        return renew (argv[1], argv[2]);
    GError *error = NULL;
    uint64_t bytes;
    const char *directory = argv[1], *old = argv[2];
    g_auto (GStrv) names = names_of (argv + 3, &error);
    g_autofree char *zone = NULL;
    bool done = false, good = names != NULL && check_old (directory, old, names, &zone, &done, &error);
    if (done) {
        tool_say (replace_verb.name, "endpoint %s was already taken out", old);
        return TOOL_DONE;
    }
    good = good && add_new (directory, argv + 3, names, zone, &error);
    g_autoptr (Ecfs) ecfs = good ? ecfs_open (directory, ECFS_OPEN_WRITE | ECFS_OPEN_LEAD, &error) : NULL;
    if (ecfs == NULL || !replace_in_rules (&ecfs, directory, old, names, &error) ||
        !tell_plan (ecfs, old, (const char *const *) names, false, &bytes, &error))
        return tool_fail (replace_verb.name, error, TOOL_FAILED);
    int status = move_all (&replace_verb, ecfs, old, (const char *const *) names, bytes);
    return status != TOOL_DONE ? status : take_out (&replace_verb, ecfs, old);
}

int verb_lifecycle (const char *action, int argc, char **argv)
{
    static const struct {
        const char *action;
        int (*run) (int argc, char **argv);
    } actions[] = {{"readonly", set_readonly}, {"active", set_active}, {"distrust", set_distrust},
                   {"drain", drain},           {"replace", replace},   {"remove", take_out_one}};
    for (size_t i = 0; i < G_N_ELEMENTS (actions); i++)
        if (strcmp (action, actions[i].action) == 0)
            return actions[i].run (argc, argv);
    return -1;
}
