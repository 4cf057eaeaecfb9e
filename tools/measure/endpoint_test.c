#include "measure/endpoint_test.h"

#include "archive/archive.h"
#include "measure/measure.h"

#include <gio/gio.h>
#include <stdio.h>
#include <string.h>

#define SCRATCH_BYTES (4 << 20)
#define RANGE_OFFSET  (1 << 20)
#define RANGE_BYTES   (64 << 10)
#define SSH_PORT      22
#define BANNER_S      5
#define BANNER_BYTES  255                              /* that SSH allows */
#define PATIENCE_US   (INT64_C (600) * G_USEC_PER_SEC) /* a stall ends sooner */

/* Adds what the endpoint can do, by name. */
static void add_capabilities (JsonObject *result, unsigned capabilities)
{
    static const struct {
        unsigned flag;
        const char *word;
    } all[] = {{ECFS_CAN_POSITION, "positional writes"},
               {ECFS_CAN_RENAME, "rename"},
               {ECFS_CAN_FSYNC, "fsync"},
               {ECFS_CAN_SPACE, "space"},
               {ECFS_CAN_LIST, "list"},
               {ECFS_CAN_LOG, "logs"}};
    JsonArray *words = json_array_new ();
    for (size_t i = 0; i < G_N_ELEMENTS (all); i++)
        if ((capabilities & all[i].flag) != 0)
            json_array_add_string_element (words, all[i].word);
    json_object_set_array_member (result, "can", words);
}

typedef struct Lack {
    const char *what, *means;
} Lack;

static void add_lack (JsonObject *result, const Lack *lack)
{
    if (!json_object_has_member (result, "lacks"))
        json_object_set_array_member (result, "lacks", json_array_new ());
    JsonObject *object = json_object_new ();
    json_object_set_string_member (object, "what", lack->what);
    json_object_set_string_member (object, "means", lack->means);
    json_array_add_object_element (json_object_get_array_member (result, "lacks"), object);
}

/* What ecfs can do without, and what that costs. */
static void add_lacks (JsonObject *result, unsigned capabilities)
{
    static const struct {
        unsigned flag;
        Lack lack;
    } all[] = {
        {ECFS_CAN_FSYNC, {"fsync", "what was stored in the seconds before a power cut there may be damaged"}},
        {ECFS_CAN_SPACE, {"space", "ecfs learns that it is full when a write fails"}},
        {ECFS_CAN_LIST, {"list", "ecfs-fsck cannot look for stripes that no file uses"}},
        {ECFS_CAN_LOG, {"logs", "it cannot take many small files as appends to one"}},
    };
    for (size_t i = 0; i < G_N_ELEMENTS (all); i++)
        if ((capabilities & all[i].flag) == 0)
            add_lack (result, &all[i].lack);
}

/*
 * Servers that acknowledge what they have only put aside, and publish later, or in part when they are cut off. The
 * protocols do not show it, so they are known by what they call themselves.
 */
static bool is_spooler (const char *banner)
{
    return strcasestr (banner, "rclone") != NULL;
}

/* What an SSH server calls itself, or NULL: not SFTP, or not to be reached without what ssh knows. g_free (). */
static char *ssh_banner (const char *url)
{
    g_autoptr (GUri) uri = g_uri_parse (url, G_URI_FLAGS_ENCODED, NULL);
    if (uri == NULL || strcmp (g_uri_get_scheme (uri), "sftp") != 0 || g_uri_get_host (uri) == NULL)
        return NULL;
    g_autoptr (GSocketClient) client = g_socket_client_new ();
    g_socket_client_set_timeout (client, BANNER_S);
    int port = g_uri_get_port (uri);
    g_autoptr (GSocketConnection) connection = g_socket_client_connect_to_host (
        client, g_uri_get_host (uri), port > 0 ? (guint16) port : SSH_PORT, NULL, NULL);
    char text[BANNER_BYTES + 1];
    size_t size = 0;
    while (connection != NULL && size < BANNER_BYTES) {
        gssize n = g_input_stream_read (g_io_stream_get_input_stream (G_IO_STREAM (connection)), text + size,
                                        BANNER_BYTES - size, NULL, NULL);
        if (n <= 0)
            break;
        size += (size_t) n;
        if (memchr (text, '\n', size) != NULL)
            break;
    }
    text[size] = '\0';
    text[strcspn (text, "\r\n")] = '\0';
    return g_str_has_prefix (text, "SSH-") ? g_strdup (text) : NULL;
}

static bool fail_spooler (const EcfsEndpoint *endpoint, GError **error)
{
    return ecfs_fail (
        error, EPROTO,
        "endpoint %s: it is served by rclone, which reports files as stored before they are, and keeps what "
        "interrupted uploads have left: data can be lost. Use the storage behind it by a protocol of its own",
        ecfs_endpoint_name (endpoint));
}

static bool test_honesty (EcfsEndpoint *endpoint, JsonObject *result, GError **error)
{
    g_autofree char *banner = ssh_banner (ecfs_endpoint_url (endpoint));
    if (banner == NULL)
        return true;
    g_autofree char *text = g_utf8_make_valid (banner, -1);
    json_object_set_string_member (result, "server", text);
    return !is_spooler (banner) || fail_spooler (endpoint, error);
}

/* What the marker says; false when it is not the one that is expected (nil: none in particular). */
static bool test_marker (EcfsEndpoint *endpoint, const EcfsMarker *expected, JsonObject *result, GError **error)
{
    EcfsMarker marker;
    GError *missing = NULL;
    bool any = ecfs_uuid_is_nil (&expected->archive);
    if (!ecfs_endpoint_examine_wait (endpoint, &marker, &missing)) {
        if (any && ecfs_errno (missing) == ENOENT) {
            json_object_set_string_member (result, "marker", "none: it is free to become an endpoint");
            g_error_free (missing);
            return true;
        }
        if (ecfs_errno (missing) != ENOENT) {
            g_propagate_error (error, missing);
            return false;
        }
        g_error_free (missing);
        return ecfs_fail (error, ENOENT,
                          "endpoint %s: it has no marker, the file " ECFS_MARKER_NAME
                          ": check that it is mounted and its URL is right",
                          ecfs_endpoint_name (endpoint));
    }
    char archive[ECFS_UUID_TEXT_SIZE], uuid[ECFS_UUID_TEXT_SIZE];
    ecfs_uuid_text (&marker.archive, archive);
    ecfs_uuid_text (&marker.endpoint, uuid);
    g_autofree char *text = g_strdup_printf ("endpoint %s of archive %s", uuid, archive);
    json_object_set_string_member (result, "marker", text);
    if (!any && !ecfs_uuid_equal (&marker.archive, &expected->archive))
        return ecfs_fail (error, EPROTO, "endpoint %s: it belongs to another archive, %s: check its URL in ecfs.conf",
                          ecfs_endpoint_name (endpoint), archive);
    if (!any && !ecfs_uuid_equal (&marker.endpoint, &expected->endpoint))
        return ecfs_fail (error, EPROTO,
                          "endpoint %s: it is another endpoint of this archive, %s: check the URLs in ecfs.conf",
                          ecfs_endpoint_name (endpoint), uuid);
    return true;
}

static bool test_range (EcfsEndpoint *endpoint, const MeasureFiles *files, GError **error)
{
    uint8_t to[RANGE_BYTES] = {0};
    EcfsRange part = {.offset = RANGE_OFFSET, .size = RANGE_BYTES, .to = to};
    if (!ecfs_endpoint_read_wait (endpoint, files->names[0], &part, 1, error))
        return false;
    return memcmp (to, files->bytes + RANGE_OFFSET, RANGE_BYTES) == 0 ||
           ecfs_fail (error, EIO, "endpoint %s: a range was read with other bytes than were written",
                      ecfs_endpoint_name (endpoint));
}

/* Servers may rename over what is there: ecfs never uses a name twice, so nothing is lost by it. */
static bool test_replacing (EcfsEndpoint *endpoint, const MeasureFiles *files, JsonObject *result, GError **error)
{
    static const Lack lack = {"refusal to replace", "renaming replaces what is there; ecfs never uses a name twice"};
    GError *refusal = NULL;
    if (ecfs_endpoint_write_wait (endpoint, files->names[0], "x", 1, &refusal)) {
        add_lack (result, &lack);
        return true;
    }
    if (ecfs_errno (refusal) != EEXIST) {
        g_propagate_error (error, refusal);
        return false;
    }
    g_error_free (refusal);
    return true;
}

static bool test_append (EcfsEndpoint *endpoint, JsonObject *result, GError **error)
{
    double seconds;
    GError *refusal = NULL;
    if (measure_append (endpoint, &seconds, &refusal)) {
        json_object_set_double_member (result, "append_ms", seconds * 1000);
        return true;
    }
    if (ecfs_errno (refusal) != ENOTSUP) {
        g_propagate_error (error, refusal);
        return false;
    }
    g_error_free (refusal);
    return true;
}

static bool test_there (EcfsEndpoint *endpoint, const MeasureFiles *files, JsonObject *result, GError **error)
{
    double seconds, bytes_per_s;
    if (!measure_round_trip (endpoint, files, &seconds, error))
        return false;
    json_object_set_double_member (result, "round_trip_ms", seconds * 1000);
    if (!test_range (endpoint, files, error) || !measure_read (endpoint, files, PATIENCE_US, &bytes_per_s, error))
        return false;
    json_object_set_double_member (result, "read_bytes_per_s", bytes_per_s);
    if (!test_append (endpoint, result, error))
        return false;
    return test_replacing (endpoint, files, result, error); /* last: the file may be another one then */
}

static bool test_gone (EcfsEndpoint *endpoint, const MeasureFiles *files, JsonObject *result, GError **error)
{
    static const Lack lack = {"deleting", "as its option delete says, so what this test wrote stays there"};
    uint64_t size;
    g_autoptr (GError) gone = NULL;
    if (ecfs_endpoint_retain_us (endpoint) != ECFS_RETAIN_NOT) {
        add_lack (result, &lack);
        return true;
    }
    if (!measure_remove (endpoint, files, error))
        return false;
    if (ecfs_endpoint_size_wait (endpoint, files->names[0], &size, &gone))
        return ecfs_fail (error, EIO, "endpoint %s: a deleted file is still there", ecfs_endpoint_name (endpoint));
    if (ecfs_errno (gone) == ENOENT)
        return true;
    g_propagate_error (error, g_steal_pointer (&gone));
    return false;
}

/* Write, commit, ask, read a range, read all, append, try to replace, delete. */
static bool test_cycle (EcfsEndpoint *endpoint, JsonObject *result, GError **error)
{
    g_autoptr (MeasureFiles) files = measure_files_new (1, SCRATCH_BYTES);
    double bytes_per_s;
    if (!measure_write (endpoint, files, PATIENCE_US, &bytes_per_s, error))
        return false;
    json_object_set_double_member (result, "write_bytes_per_s", bytes_per_s);
    bool good = test_there (endpoint, files, result, error);
    GError *left = NULL;
    if (test_gone (endpoint, files, result, &left))
        return good;
    if (!good) {
        g_error_free (left); /* the first error tells more */
        return false;
    }
    g_propagate_error (error, left);
    return false;
}

/* By the name that an HTTP server gives itself, which is known once it was connected to. */
static bool test_http_honesty (EcfsEndpoint *endpoint, GError **error)
{
    g_autofree char *description = ecfs_endpoint_description (endpoint);
    bool is_ours = g_str_has_prefix (ecfs_endpoint_url (endpoint), "rclone:"); /* we ask it for what it does well */
    return description == NULL || is_ours || !is_spooler (description) || fail_spooler (endpoint, error);
}

static bool test_all (EcfsEndpoint *endpoint, const EcfsMarker *expected, JsonObject *result, GError **error)
{
    if (!test_honesty (endpoint, result, error) || !test_marker (endpoint, expected, result, error) ||
        !test_http_honesty (endpoint, error) || !test_cycle (endpoint, result, error))
        return false;
    uint64_t free_bytes;
    if (ecfs_endpoint_space_wait (endpoint, &free_bytes, NULL)) /* not every server tells */
        json_object_set_int_member (result, "free_bytes", (int64_t) free_bytes);
    return true;
}

/* A place without a marker is nobody's, so nothing is on its way to it. */
static void tidy (EcfsEndpoint *endpoint)
{
    EcfsMarker marker;
    g_autoptr (GError) error = NULL;
    if (!ecfs_endpoint_examine_wait (endpoint, &marker, &error) && ecfs_errno (error) == ENOENT)
        (void) !ecfs_endpoint_remove_directory_wait (endpoint, "incoming", NULL); /* what is in use stays */
}

static void test_endpoint (EcfsEndpoint *endpoint, const EcfsMarker *expected, JsonArray *results)
{
    JsonObject *result = json_object_new ();
    const char *name = ecfs_endpoint_name (endpoint);
    json_object_set_string_member (result, "name", name);
    json_object_set_string_member (result, "url", ecfs_endpoint_url (endpoint));
    GError *error = NULL;
    bool works = test_all (endpoint, expected, result, &error);
    tidy (endpoint);
    unsigned capabilities = ecfs_endpoint_capabilities (endpoint);
    if (!json_object_has_member (result, "append_ms")) /* what a server offers it may lack */
        capabilities &= ~(unsigned) ECFS_CAN_LOG;
    add_capabilities (result, capabilities);
    if (works)
        add_lacks (result, capabilities);
    g_autofree char *description = ecfs_endpoint_description (endpoint);
    if (description != NULL) {
        g_autofree char *text = g_utf8_make_valid (description, -1);
        json_object_set_string_member (result, "server", text);
    }
    json_object_set_boolean_member (result, "works", works);
    if (!works) {
        g_autofree char *text = g_utf8_make_valid (error->message, -1);
        json_object_set_string_member (result, "error", text);
        g_error_free (error);
    }
    json_array_add_object_element (results, result);
}

static bool is_named (const char *name, char **names, int n_names)
{
    for (int i = 0; i < n_names; i++)
        if (strcmp (names[i], name) == 0)
            return true;
    return n_names == 0;
}

static bool check_names (const EcfsArchive *archive, char **names, int n_names, GError **error)
{
    for (int i = 0; i < n_names; i++) {
        bool found = false;
        for (size_t j = 0; j < ecfs_archive_n_endpoints (archive) && !found; j++)
            found = strcmp (ecfs_archive_endpoint (archive, j)->name, names[i]) == 0;
        if (!found)
            return ecfs_fail (error, ENOENT,
                              "the archive has no endpoint \"%s\": 'ecfs endpoint list' shows those it has", names[i]);
    }
    return true;
}

bool endpoint_test_archive (const char *directory, char **names, int n_names, JsonArray *results, GError **error)
{
    g_autoptr (EcfsArchive) archive = ecfs_archive_open (directory, ECFS_ARCHIVE_READONLY, error);
    if (archive == NULL || !check_names (archive, names, n_names, error) || !ecfs_archive_start (archive, error))
        return false;
    EcfsMarker expected = {.archive = *ecfs_catalog_archive (ecfs_archive_catalog (archive))};
    for (size_t i = 0; i < ecfs_archive_n_endpoints (archive); i++) {
        const EcfsArchiveEndpoint *endpoint = ecfs_archive_endpoint (archive, i);
        expected.endpoint = endpoint->uuid;
        if (endpoint->endpoint != NULL && is_named (endpoint->name, names, n_names))
            test_endpoint (endpoint->endpoint, &expected, results);
    }
    ecfs_archive_stop (archive);
    return true;
}

bool endpoint_test_urls (char **specs, JsonArray *results, GError **error)
{
    for (char **text = specs; *text != NULL; text++) {
        g_autoptr (EcfsEndpointSpec) spec = ecfs_endpoint_spec_parse (*text, error);
        if (spec == NULL)
            return false;
        if (spec->options != NULL)
            g_hash_table_remove (spec->options, "zone"); /* says nothing about the place itself */
        EcfsMarker any = {0};
        g_autoptr (EcfsEndpoint) endpoint = ecfs_endpoint_new (spec, &any, error);
        if (endpoint == NULL)
            return false;
        ecfs_endpoint_start (endpoint);
        test_endpoint (endpoint, &any, results);
        ecfs_endpoint_stop (endpoint);
    }
    return true;
}

/* Results for people */

static void print_rate (JsonObject *result, const char *label, const char *member)
{
    if (!json_object_has_member (result, member))
        return;
    g_autofree char *rate = tool_bytes (tool_double (result, member));
    printf ("  %-11s%s/s\n", label, rate);
}

static void print_can (JsonObject *result)
{
    JsonArray *words = json_object_get_array_member (result, "can");
    if (json_array_get_length (words) == 0)
        return;
    fputs ("  can        ", stdout);
    for (unsigned i = 0; i < json_array_get_length (words); i++)
        printf ("%s%s", i > 0 ? ", " : "", json_array_get_string_element (words, i));
    puts ("");
}

static void print_lacks (JsonObject *result)
{
    if (!json_object_has_member (result, "lacks"))
        return;
    JsonArray *lacks = json_object_get_array_member (result, "lacks");
    for (unsigned i = 0; i < json_array_get_length (lacks); i++) {
        JsonObject *lack = json_array_get_object_element (lacks, i);
        printf ("  lacks      %s: %s\n", tool_text (lack, "what"), tool_text (lack, "means"));
    }
}

static void print_result (JsonObject *result)
{
    bool works = json_object_get_boolean_member (result, "works");
    printf ("%s: %s\n  url        %s\n", tool_text (result, "name"), works ? "works" : "does not work",
            tool_text (result, "url"));
    if (json_object_has_member (result, "marker"))
        printf ("  marker     %s\n", tool_text (result, "marker"));
    if (json_object_has_member (result, "server")) {
        g_autofree char *server = tool_printable (tool_text (result, "server"));
        printf ("  server     %s\n", server);
    }
    print_can (result);
    print_lacks (result);
    if (json_object_has_member (result, "round_trip_ms")) {
        g_autofree char *time = tool_seconds (tool_double (result, "round_trip_ms") / 1000);
        printf ("  round trip %s\n", time);
    }
    if (json_object_has_member (result, "append_ms")) {
        g_autofree char *time = tool_seconds (tool_double (result, "append_ms") / 1000);
        printf ("  append     %s\n", time);
    }
    print_rate (result, "write", "write_bytes_per_s");
    print_rate (result, "read", "read_bytes_per_s");
    if (json_object_has_member (result, "free_bytes")) {
        g_autofree char *free_bytes = tool_bytes ((double) tool_number (result, "free_bytes"));
        printf ("  free       %s\n", free_bytes);
    }
}

bool endpoint_test_print (const char *verb, JsonArray *results, bool json)
{
    bool good = true;
    for (unsigned i = 0; i < json_array_get_length (results); i++) {
        JsonObject *result = json_array_get_object_element (results, i);
        if (!json)
            print_result (result);
        if (json_object_get_boolean_member (result, "works"))
            continue;
        good = false;
        fflush (stdout);
        tool_say (verb, "%s", tool_text (result, "error"));
    }
    if (json) {
        JsonNode *node = json_node_new (JSON_NODE_ARRAY);
        json_node_set_array (node, results);
        tool_print_json (node);
    }
    return good;
}
