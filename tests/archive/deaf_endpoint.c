#include "deaf_endpoint.h"

#include "archive/archive_priv.h"
#include "endpoint/core/driver.h"

static EcfsMarker deaf_marker;
atomic_bool may_answer;
atomic_uint n_taken;

static void *deaf_config (const EcfsEndpointSpec *spec, GError **error)
{
    (void) error;
    return g_strdup (spec->url);
}

static void *deaf_connect (EcfsSlot *slot, bool make_root, GError **error)
{
    (void) make_root;
    (void) error;
    ecfs_slot_capabilities (slot, 0);
    return g_strdup ("connection");
}

/* Whether the request was one of those that are answered at once. */
static bool deaf_tell (EcfsStream *request)
{
    g_autofree char *marker = ecfs_marker_format (&deaf_marker);
    if (request->kind == ECFS_REQUEST_EXAMINE)
        ecfs_request_finish_marker (request, marker, strlen (marker));
    else if (request->kind == ECFS_REQUEST_LIST)
        ecfs_request_finish (request, 0, NULL);
    else
        return false;
    return true;
}

static bool deaf_serve (EcfsSlot *slot, void *connection, GError **error)
{
    (void) connection;
    g_autoptr (GPtrArray) taken = g_ptr_array_new ();
    while (ecfs_slot_check (slot, error)) {
        EcfsStream *request = ecfs_slot_take (slot);
        if (request != NULL && !deaf_tell (request)) {
            g_ptr_array_add (taken, request);
            atomic_fetch_add (&n_taken, 1);
        }
        for (; atomic_load (&may_answer) && taken->len > 0; g_ptr_array_remove_index (taken, 0))
            ecfs_request_finish (taken->pdata[0], 0, NULL);
        if (request == NULL)
            (void) ecfs_slot_wait (slot, ecfs_now_us () + 10000);
    }
    return false;
}

static EcfsEndpoint *deaf_endpoint (void)
{
    static const char *const keys[] = {ECFS_COMMON_OPTION_KEYS, NULL};
    static const EcfsDriver driver = {.scheme = "deaf",
                                      .option_keys = keys,
                                      .default_connections = 1,
                                      .new_config = deaf_config,
                                      .free_config = g_free,
                                      .connect = deaf_connect,
                                      .serve = deaf_serve,
                                      .disconnect = g_free};
    static const EcfsMarker nothing;
    g_autoptr (GError) error = NULL;
    ecfs_endpoint_register_for_tests (&driver);
    EcfsEndpointSpec *spec = ecfs_endpoint_spec_new ("deaf", "deaf:///");
    EcfsEndpoint *endpoint = ecfs_endpoint_new (spec, &nothing, &error);
    g_assert_no_error (error);
    ecfs_endpoint_spec_free (spec);
    return endpoint;
}

void set_up_deaf (Fixture *fixture, gconstpointer code)
{
    g_autoptr (GError) error = NULL;
    atomic_store (&may_answer, false);
    atomic_store (&n_taken, 0);
    set_up (fixture, code);
    ecfs_archive_free (fixture->archive);
    fixture->archive = ecfs_archive_open (fixture->directory, 0, &error);
    g_assert_no_error (error);
    ecfs_endpoint_free (fixture->archive->endpoints[0].endpoint);
    fixture->archive->endpoints[0].endpoint = deaf_endpoint ();
    deaf_marker = (EcfsMarker){.archive = *ecfs_catalog_archive (fixture->archive->catalog),
                               .endpoint = fixture->archive->endpoints[0].uuid,
                               .epoch = 1};
    g_assert_true (ecfs_archive_start (fixture->archive, &error));
}
