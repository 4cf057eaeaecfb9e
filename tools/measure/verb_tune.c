/* tune: measures endpoints and machine, proposes settings, writes them */
#include "measure/tune.h"
#include "tool.h"
#include "util/units.h"

#include <inttypes.h>
#include <stdio.h>
#include <unistd.h>

/* Where one can see it. */
static void show_progress (void *user, const char *what)
{
    (void) user;
    if (isatty (STDERR_FILENO))
        fprintf (stderr, "\r\033[Kmeasuring %s", what);
}

static void clear_progress (void)
{
    if (isatty (STDERR_FILENO))
        fputs ("\r\033[K", stderr);
}

static JsonObject *trial_facts (const TuneTrial *trial, const TuneEndpoint *endpoint)
{
    JsonObject *facts = json_object_new ();
    json_object_set_int_member (facts, "connections", trial->connections);
    if (endpoint->transport != NULL)
        json_object_set_string_member (facts, "transport",
                                       trial->transport != NULL ? trial->transport : endpoint->transport);
    json_object_set_double_member (facts, "read_bytes_per_s", trial->read_bytes_per_s);
    json_object_set_double_member (facts, "write_bytes_per_s", trial->write_bytes_per_s);
    if (trial->cpu_s_per_gib > 0)
        json_object_set_double_member (facts, "cpu_s_per_gib", trial->cpu_s_per_gib);
    return facts;
}

static JsonObject *endpoint_facts (const TuneEndpoint *endpoint)
{
    JsonObject *facts = json_object_new ();
    json_object_set_string_member (facts, "name", endpoint->name);
    json_object_set_string_member (facts, "url", endpoint->url);
    json_object_set_double_member (facts, "round_trip_ms", endpoint->round_trip_s * 1000);
    JsonArray *trials = json_array_new ();
    for (unsigned i = 0; i < endpoint->n_trials; i++)
        json_array_add_object_element (trials, trial_facts (&endpoint->trials[i], endpoint));
    json_object_set_array_member (facts, "trials", trials);
    if (endpoint->error != NULL)
        json_object_set_string_member (facts, "error", endpoint->error);
    return facts;
}

static JsonObject *machine_facts (const TuneMachine *machine)
{
    JsonObject *facts = json_object_new (), *ciphers = json_object_new ();
    JsonArray *segments = json_array_new ();
    json_object_set_string_member (facts, "code", machine->code);
    json_object_set_int_member (facts, "memory_bytes", (int64_t) machine->memory_bytes);
    for (unsigned i = 0; i < TUNE_N_SEGMENTS; i++) {
        JsonObject *row = json_object_new ();
        json_object_set_int_member (row, "segment_size", (int64_t) machine->segment_bytes[i]);
        json_object_set_double_member (row, "encode_bytes_per_s", machine->encode_bytes_per_s[i]);
        json_object_set_double_member (row, "decode_bytes_per_s", machine->decode_bytes_per_s[i]);
        json_array_add_object_element (segments, row);
    }
    for (unsigned i = 0; i < TUNE_N_CIPHERS; i++)
        json_object_set_double_member (ciphers, machine->ciphers[i], machine->cipher_bytes_per_s[i]);
    json_object_set_array_member (facts, "segments", segments);
    json_object_set_object_member (facts, "cipher_bytes_per_s", ciphers);
    return facts;
}

static void print_json (const TuneFigures *figures, const GPtrArray *proposals, bool applied)
{
    JsonObject *facts = json_object_new ();
    JsonArray *endpoints = json_array_new (), *rows = json_array_new ();
    for (unsigned i = 0; i < figures->n_endpoints; i++)
        json_array_add_object_element (endpoints, endpoint_facts (&figures->endpoints[i]));
    for (unsigned i = 0; i < proposals->len; i++) {
        const TuneProposal *proposal = g_ptr_array_index (proposals, i);
        JsonObject *row = json_object_new ();
        json_object_set_string_member (row, "section", proposal->change.section);
        json_object_set_string_member (row, "key", proposal->change.key);
        json_object_set_string_member (row, "value", proposal->change.value);
        json_object_set_string_member (row, "now", proposal->now);
        json_object_set_string_member (row, "reason", proposal->reason);
        json_array_add_object_element (rows, row);
    }
    json_object_set_object_member (facts, "machine", machine_facts (&figures->machine));
    json_object_set_array_member (facts, "endpoints", endpoints);
    json_object_set_array_member (facts, "proposals", rows);
    json_object_set_boolean_member (facts, "applied", applied);
    JsonNode *node = json_node_new (JSON_NODE_OBJECT);
    json_node_take_object (node, facts);
    tool_print_json (node);
}

static void rate_cell (GPtrArray *cells, double bytes_per_s)
{
    g_autofree char *bytes = tool_bytes (bytes_per_s);
    tool_cell (cells, g_strdup_printf ("%s/s", bytes));
}

static void print_machine (const TuneMachine *machine)
{
    g_autoptr (GPtrArray) cells = g_ptr_array_new_with_free_func (g_free);
    tool_cell (cells, g_strdup ("SEGMENT"));
    tool_cell (cells, g_strdup ("ENCODE"));
    tool_cell (cells, g_strdup ("DECODE"));
    for (unsigned i = 0; i < TUNE_N_SEGMENTS; i++) {
        tool_cell (cells, tool_bytes ((double) machine->segment_bytes[i]));
        rate_cell (cells, machine->encode_bytes_per_s[i]);
        rate_cell (cells, machine->decode_bytes_per_s[i]);
    }
    printf ("%s on one core:\n", machine->code);
    tool_table (cells, 3, "  ");
    for (unsigned i = 0; i < TUNE_N_CIPHERS; i++) {
        g_autofree char *rate = tool_bytes (machine->cipher_bytes_per_s[i]);
        printf ("%s%s %s/s", i > 0 ? ", " : "ciphers on one core: ", machine->ciphers[i], rate);
    }
    puts ("\n");
}

static void print_endpoints (const TuneFigures *figures)
{
    static const char *const titles[] = {"ENDPOINT", "ROUND TRIP", "CONNECTIONS", "TRANSPORT",
                                         "READ",     "WRITE",      "CPU/GiB"};
    g_autoptr (GPtrArray) cells = g_ptr_array_new_with_free_func (g_free);
    for (size_t i = 0; i < G_N_ELEMENTS (titles); i++)
        tool_cell (cells, g_strdup (titles[i]));
    for (unsigned i = 0; i < figures->n_endpoints; i++) {
        const TuneEndpoint *endpoint = &figures->endpoints[i];
        for (unsigned j = 0; j < endpoint->n_trials; j++) {
            const TuneTrial *trial = &endpoint->trials[j];
            const char *transport = trial->transport != NULL ? trial->transport : endpoint->transport;
            tool_cell (cells, g_strdup (j == 0 ? endpoint->name : ""));
            tool_cell (cells, j == 0 ? tool_seconds (endpoint->round_trip_s) : g_strdup (""));
            tool_cell (cells, g_strdup_printf ("%u", trial->connections));
            tool_cell (cells, g_strdup (transport != NULL ? transport : "-"));
            rate_cell (cells, trial->read_bytes_per_s);
            rate_cell (cells, trial->write_bytes_per_s);
            tool_cell (cells, trial->cpu_s_per_gib > 0 ? tool_seconds (trial->cpu_s_per_gib) : g_strdup ("-"));
        }
    }
    tool_table (cells, G_N_ELEMENTS (titles), "");
}

static void print_proposals (const GPtrArray *proposals, const char *directory, bool applied)
{
    if (proposals->len == 0) {
        puts ("\nNothing is proposed: the settings suit what was measured.");
        return;
    }
    puts (applied ? "\nWritten to ecfs.conf:" : "\nProposed for ecfs.conf:");
    for (unsigned i = 0; i < proposals->len; i++) {
        const TuneProposal *proposal = g_ptr_array_index (proposals, i);
        printf ("  [%s] %s = %s (was %s)\n    %s\n", proposal->change.section, proposal->change.key,
                proposal->change.value, proposal->now, proposal->reason);
    }
    if (applied)
        printf ("The previous file is %s/ecfs.conf" ECFS_CONFIG_PREVIOUS ".\n", directory);
    else
        puts ("ecfs tune --apply writes these settings.");
}

static bool apply (const char *directory, const GPtrArray *proposals, GError **error)
{
    g_autofree EcfsConfigChange *changes = g_new (EcfsConfigChange, proposals->len + 1);
    for (unsigned i = 0; i < proposals->len; i++)
        changes[i] = ((const TuneProposal *) g_ptr_array_index (proposals, i))->change;
    return proposals->len == 0 || ecfs_config_rewrite (directory, changes, proposals->len, error);
}

static int tell_failures (const Verb *verb, const TuneFigures *figures)
{
    int status = TOOL_DONE;
    for (unsigned i = 0; i < figures->n_endpoints; i++)
        if (figures->endpoints[i].error != NULL) {
            fflush (stdout);
            tool_say (verb->name, "%s", figures->endpoints[i].error);
            status = TOOL_FAILED;
        }
    return status;
}

/* Whoever has the archive open goes on with what ecfs.conf said: to change it takes the archive's lock. */
static EcfsArchive *open_archive (const char *directory, bool to_apply, GError **error)
{
    EcfsArchive *archive = ecfs_archive_open (directory, to_apply ? ECFS_ARCHIVE_MEMBER : ECFS_ARCHIVE_READONLY, error);
    if (archive == NULL && to_apply && ecfs_errno (*error) == EBUSY)
        g_prefix_error (error,
                        "new settings count from the next mount on, so unmount the archive before you apply them: ");
    return archive;
}

int verb_tune (const Verb *verb, int argc, char **argv)
{
    gboolean json = FALSE, to_apply = FALSE;
    g_autofree char *load = NULL;
    uint64_t load_bytes = TUNE_LOAD_MAX;
    const GOptionEntry options[] = {
        {"apply", 0, 0, G_OPTION_ARG_NONE, &to_apply, "Write the proposed settings to ecfs.conf", NULL},
        {"load", 0, 0, G_OPTION_ARG_STRING, &load, "Bytes to move at once, at most (64M)", "SIZE"},
        {"json", 0, 0, G_OPTION_ARG_NONE, &json, "Print a JSON object", NULL},
        G_OPTION_ENTRY_NULL};
    (void) tool_parse (verb, options, argc, argv, 1, 1);
    GError *error = NULL;
    if (load != NULL &&
        (!ecfs_parse_size (load, &load_bytes) || load_bytes < TUNE_LOAD_MIN || load_bytes > TUNE_LOAD_MAX)) {
        tool_say (verb->name, "--load: \"%s\" is not a size from 1M to 64M", load);
        return TOOL_USAGE;
    }
    g_autoptr (EcfsArchive) archive = open_archive (argv[1], to_apply, &error);
    if (archive == NULL)
        return tool_fail (verb->name, error, TOOL_FAILED);
    g_autoptr (TuneFigures) figures = tune_measure (archive, load_bytes, show_progress, NULL, &error);
    clear_progress ();
    if (figures == NULL)
        return tool_fail (verb->name, error, TOOL_FAILED);
    g_autoptr (GPtrArray) proposals = tune_propose (ecfs_archive_config (archive), figures);
    const char *directory = ecfs_archive_directory (archive);
    if (to_apply && !apply (directory, proposals, &error))
        return tool_fail (verb->name, error, TOOL_FAILED);
    if (json) {
        print_json (figures, proposals, to_apply);
    } else {
        print_machine (&figures->machine);
        print_endpoints (figures);
        print_proposals (proposals, directory, to_apply);
    }
    return tell_failures (verb, figures);
}
