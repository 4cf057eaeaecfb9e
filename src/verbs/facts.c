/* What can be told of an archive by its directory alone, and of this library without any. */
#include "archive/archive.h"
#include "archive/common.h"
#include "archive/zones.h"
#include "catalog/pg.h"
#include "codec/codec.h"
#include "ecfs/ecfs.h"
#include "object/spread.h"
#include "util/text.h"

#include <isa-l.h>
#include <json-glib/json-glib.h>
#include <libssh2.h>
#include <sqlite3.h>
#include <string.h>

static char *text_of (JsonObject *object)
{
    g_autoptr (JsonNode) node = json_node_new (JSON_NODE_OBJECT);
    json_node_take_object (node, object);
    return json_to_string (node, TRUE);
}

static void add_words (JsonObject *object, const char *member, const char *const *words)
{
    JsonArray *array = json_array_new ();
    for (; *words != NULL; words++)
        json_array_add_string_element (array, *words);
    json_object_set_array_member (object, member, array);
}

char *ecfs_features (void)
{
    g_autofree char *isal = g_strdup_printf ("%d.%d.%d", ISAL_MAJOR_VERSION, ISAL_MINOR_VERSION, ISAL_PATCH_VERSION);
    const char *liberasurecode = ecfs_codec_liberasurecode_version ();
    JsonObject *facts = json_object_new (), *libraries = json_object_new ();
    json_object_set_string_member (facts, "version", ECFS_VERSION);
    add_words (facts, "codes", ecfs_codec_names ());
    add_words (facts, "rs_providers", ecfs_codec_providers ());
    add_words (facts, "schemes", ecfs_endpoint_schemes ());
    add_words (facts, "schemes_left_out", ecfs_endpoint_absent_schemes ());
    json_object_set_string_member (libraries, "ISA-L", isal);
    if (liberasurecode != NULL)
        json_object_set_string_member (libraries, "liberasurecode", liberasurecode);
    json_object_set_string_member (libraries, "libssh2", libssh2_version (0));
    json_object_set_string_member (libraries, "SQLite", sqlite3_libversion ());
    g_autofree char *libpq = ecfs_pg_version ();
    if (libpq != NULL)
        json_object_set_string_member (libraries, "libpq", libpq);
    json_object_set_object_member (facts, "libraries", libraries);
    return text_of (facts);
}

char *ecfs_printable (const char *text)
{
    return ecfs_text_clean (text, SIZE_MAX);
}

char *ecfs_parse_endpoint (const char *endpoint, GError **error)
{
    EcfsEndpointSpec *spec = ecfs_endpoint_spec_parse (endpoint, error);
    g_autoptr (EcfsConfigEndpoint) parsed = spec == NULL ? NULL : ecfs_config_endpoint_new (spec, error);
    return parsed == NULL ? NULL : g_strdup (parsed->spec->name);
}

static bool add_endpoint (JsonArray *array, EcfsArchive *archive, const EcfsArchiveEndpoint *endpoint, GError **error)
{
    char uuid[ECFS_UUID_TEXT_SIZE];
    g_autofree char *kept = NULL;
    ecfs_uuid_text (&endpoint->uuid, uuid);
    if (endpoint->endpoint == NULL && /* ecfs.conf does not have it, nor its zone */
        !ecfs_zone_kept (ecfs_archive_catalog (archive), &endpoint->uuid, &kept, error))
        return false;
    JsonObject *object = json_object_new ();
    json_object_set_string_member (object, "name", endpoint->name);
    json_object_set_string_member (object, "zone", kept != NULL ? kept : endpoint->zone);
    json_object_set_string_member (object, "uuid", uuid);
    json_object_set_string_member (object, "state", ecfs_endpoint_state_word (endpoint->state));
    if (endpoint->endpoint != NULL)
        json_object_set_string_member (object, "url", ecfs_endpoint_url (endpoint->endpoint));
    json_array_add_object_element (array, object);
    return true;
}

char *ecfs_list_endpoints (const char *directory, GError **error)
{
    g_autoptr (EcfsArchive) archive = ecfs_archive_open (directory, ECFS_ARCHIVE_READONLY, error);
    if (archive == NULL)
        return NULL;
    g_autoptr (JsonArray) array = json_array_new ();
    for (size_t i = 0; i < ecfs_archive_n_endpoints (archive); i++)
        if (!add_endpoint (array, archive, ecfs_archive_endpoint (archive, i), error))
            return NULL;
    g_autoptr (JsonNode) node = json_node_new (JSON_NODE_ARRAY);
    json_node_set_array (node, array);
    return json_to_string (node, TRUE);
}

bool ecfs_endpoint_was_removed (const char *directory, const char *name, bool *ret_removed, GError **error)
{
    g_autoptr (EcfsArchive) archive = ecfs_archive_open (directory, ECFS_ARCHIVE_READONLY, error);
    return archive != NULL &&
           ecfs_catalog_endpoint_name_removed (ecfs_archive_catalog (archive), name, ret_removed, error);
}

static bool takes_stripes (const EcfsArchiveEndpoint *endpoint)
{
    return endpoint->endpoint != NULL && endpoint->state == ECFS_ENDPOINT_ACTIVE;
}

/* Places as placement takes them, zones by number; returns how many of them take stripes, in how many zones. */
static unsigned count_places (EcfsArchive *archive, EcfsPlace *places, unsigned *ret_n_zones)
{
    unsigned n_usable = 0;
    *ret_n_zones = 0;
    for (size_t i = 0; i < ecfs_archive_n_endpoints (archive); i++) {
        const EcfsArchiveEndpoint *endpoint = ecfs_archive_endpoint (archive, i), *first;
        unsigned zone = 0;
        while (first = ecfs_archive_endpoint (archive, zone),
               zone < i && (!takes_stripes (first) || strcmp (first->zone, endpoint->zone) != 0))
            zone++;
        bool usable = takes_stripes (endpoint);
        places[i] = (EcfsPlace){.zone = zone, .usable = usable};
        n_usable += usable;
        *ret_n_zones += usable && zone == i;
    }
    return n_usable;
}

char *ecfs_promise (const char *directory, GError **error)
{
    g_autoptr (EcfsArchive) archive = ecfs_archive_open (directory, ECFS_ARCHIVE_READONLY, error);
    const EcfsConfig *config = archive == NULL ? NULL : ecfs_archive_config (archive);
    g_autoptr (EcfsCodec) codec = config == NULL ? NULL : ecfs_codec_new (config->code, error);
    if (codec == NULL)
        return NULL;
    unsigned n = ecfs_codec_n (codec);
    size_t n_places = ecfs_archive_n_endpoints (archive);
    g_autofree EcfsPlace *places = g_new0 (EcfsPlace, n_places);
    size_t position[ECFS_CODEC_MAX_N];
    bool wanted[ECFS_CODEC_MAX_N];
    for (unsigned i = 0; i < n; i++)
        wanted[i] = true;
    unsigned n_zones, n_usable = count_places (archive, places, &n_zones);
    unsigned n_homeless = ecfs_place (places, n_places, wanted, n, config->allow_double ? n : 1, 0, position);
    EcfsSpread spread = ecfs_spread (codec, places, position);
    JsonObject *facts = json_object_new ();
    json_object_set_string_member (facts, "code", config->code);
    json_object_set_int_member (facts, "k", ecfs_codec_k (codec));
    json_object_set_int_member (facts, "n", n);
    json_object_set_int_member (facts, "endpoints", n_usable);
    json_object_set_int_member (facts, "zones", n_zones);
    json_object_set_int_member (facts, "stripes_without_place", n_homeless);
    json_object_set_int_member (facts, "endpoints_may_vanish", spread.endpoints);
    json_object_set_int_member (facts, "zones_may_vanish", spread.zones);
    const EcfsKeyShares *shares = ecfs_archive_key_shares (archive);
    if (shares != NULL && ecfs_key_shares_threshold (shares) > 0)
        json_object_set_int_member (facts, "key_threshold", ecfs_key_shares_threshold (shares));
    return text_of (facts);
}

char *ecfs_backlog (const char *directory, GError **error)
{
    EcfsTotals totals;
    EcfsRecoveryPoint point;
    uint64_t next_ino;
    g_autoptr (EcfsArchive) archive = ecfs_archive_open (directory, ECFS_ARCHIVE_READONLY, error);
    if (archive == NULL || !ecfs_catalog_totals (ecfs_archive_catalog (archive), &totals, error) ||
        !ecfs_archive_recovery_point (archive, &point, error) ||
        !ecfs_catalog_next_ino (ecfs_archive_catalog (archive), &next_ino, error))
        return NULL;
    bool has_names = next_ino > ECFS_ROOT_INO + 1; /* without, a journal has nothing to lose */
    JsonObject *facts = json_object_new ();
    json_object_set_int_member (facts, "staged", (int64_t) totals.n_staged);
    json_object_set_int_member (facts, "not_full", (int64_t) totals.n_not_full);
    json_object_set_int_member (facts, "deletions", (int64_t) totals.n_deletions);
    json_object_set_int_member (facts, "changes_behind",
                                has_names && point.stored < point.sequence ? (int64_t) (point.sequence - point.stored)
                                                                           : 0);
    g_autofree char *leader = ecfs_catalog_leader (ecfs_archive_catalog (archive));
    if (leader != NULL)
        json_object_set_string_member (facts, "leader", leader);
    return text_of (facts);
}
