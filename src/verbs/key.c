/* What keeps an archive's keys: the ways to open them, and who has what of it. */
#include "verbs/key.h"
#include "archive/common.h"
#include "archive/key_losses.h"
#include "archive/key_slots.h"
#include "archive/keys.h"
#include "key/recipient.h"
#include "salvage-resource.h"
#include "util/sha256.h"
#include "verbs/verbs.h"

#include <json-glib/json-glib.h>

static char *text_of (JsonObject *object)
{
    g_autoptr (JsonNode) node = json_node_new (JSON_NODE_OBJECT);
    json_node_take_object (node, object);
    return json_to_string (node, TRUE);
}

/* What an endpoint has of the shared keys, as a word of ecfs-key(1). */
static const char *state_of (const EcfsArchive *archive, const EcfsArchiveEndpoint *endpoint)
{
    unsigned x;
    g_autoptr (GError) why = NULL;
    if (endpoint->endpoint == NULL || !ecfs_archive_endpoint_counts (endpoint))
        return "unused";
    if (ecfs_key_shares_look (ecfs_archive_key_shares (archive), endpoint->endpoint, &x, &why))
        return "stored";
    return why->code == ENOENT ? "missing" : "unknown";
}

static void add_endpoints (const EcfsArchive *archive, JsonObject *object)
{
    JsonArray *array = json_array_new ();
    for (size_t i = 0; i < ecfs_archive_n_endpoints (archive); i++) {
        const EcfsArchiveEndpoint *endpoint = ecfs_archive_endpoint (archive, i);
        JsonObject *one = json_object_new ();
        json_object_set_string_member (one, "name", endpoint->name);
        json_object_set_string_member (one, "zone", endpoint->zone);
        json_object_set_string_member (one, "key_file", state_of (archive, endpoint));
        json_array_add_object_element (array, one);
    }
    json_object_set_array_member (object, "endpoints", array);
}

static void add_recipient (const EcfsKeySlot *slot, JsonObject *object)
{
    if (slot->kind != ECFS_KEY_SLOT_RECIPIENT || slot->note_bytes != ECFS_KEY_BYTES)
        return;
    g_autofree char *recipient = ecfs_recipient_text (slot->note);
    json_object_set_string_member (object, "recipient", recipient);
}

static void add_slots (const EcfsKeyFile *file, JsonObject *object)
{
    JsonArray *array = json_array_new ();
    for (guint i = 0; i < file->slots->len; i++) {
        const EcfsKeySlot *slot = g_ptr_array_index (file->slots, i);
        char id[ECFS_UUID_TEXT_SIZE];
        JsonObject *one = json_object_new ();
        ecfs_uuid_text (&slot->id, id);
        json_object_set_string_member (one, "id", id);
        json_object_set_string_member (one, "kind", ecfs_key_slot_kind_text (slot->kind));
        add_recipient (slot, one);
        json_array_add_object_element (array, one);
    }
    json_object_set_array_member (object, "slots", array);
}

JsonArray *ecfs_key_slots_array (const EcfsKeyShares *shares)
{
    JsonArray *kinds = json_array_new ();
    for (unsigned kind = ECFS_KEY_SLOT_SPLIT; kind <= ECFS_KEY_SLOT_RECIPIENT; kind++)
        if (ecfs_key_shares_has_kind (shares, (EcfsKeySlotKind) kind))
            json_array_add_string_element (kinds, ecfs_key_slot_kind_text ((EcfsKeySlotKind) kind));
    return kinds;
}

char *ecfs_salvage_sha256 (void)
{
    uint8_t digest[ECFS_SHA256_SIZE];
    g_autoptr (EcfsSha256) sum = ecfs_sha256_new ();
    g_autoptr (GBytes) bytes = g_resource_lookup_data (ecfs_salvage_get_resource (), "/salvage/ecfs-salvage", 0, NULL);
    GString *text = g_string_new (NULL);
    gsize size;
    const void *data = g_bytes_get_data (bytes, &size); /* it is in this library */
    ecfs_sha256_update (sum, data, size);
    ecfs_sha256_end (sum, digest);
    for (unsigned i = 0; i < sizeof digest; i++)
        g_string_append_printf (text, "%02x", digest[i]);
    return g_string_free (text, FALSE);
}

/* What is said of slots is said of the newest. */
static void renew (EcfsArchive *archive)
{
    g_autoptr (GError) why = NULL;
    if (!ecfs_archive_renew_key_slots (archive, &why))
        g_warning ("%s", why->message);
}

char *ecfs_key_list (Ecfs *self, GError **error)
{
    EcfsArchive *archive = self->archive;
    renew (archive);
    const EcfsKeyRing *keys = ecfs_archive_keys (archive);
    const EcfsKeyShares *shares = ecfs_archive_key_shares (archive);
    char id[ECFS_UUID_TEXT_SIZE];
    if (keys == NULL) {
        (void) !ecfs_fail (error, ENOKEY, "%s has no key", ecfs_archive_directory (archive));
        return NULL;
    }
    JsonObject *object = json_object_new ();
    ecfs_uuid_text (ecfs_key_ring_active (keys), id);
    json_object_set_string_member (object, "key", id);
    JsonArray *retired = json_array_new ();
    for (unsigned i = 0; i < ecfs_key_ring_n_retired (keys); i++) {
        ecfs_uuid_text (ecfs_key_ring_retired (keys, i), id);
        json_array_add_string_element (retired, id);
    }
    json_object_set_array_member (object, "retired", retired);
    g_autofree char *salvage = ecfs_salvage_sha256 ();
    json_object_set_string_member (object, "salvage_sha256", salvage);
    if (shares == NULL)
        return text_of (object);
    json_object_set_int_member (object, "threshold", ecfs_key_shares_threshold (shares));
    add_slots (ecfs_key_shares_file (shares), object);
    add_endpoints (archive, object);
    return text_of (object);
}

/* Whether the keys come back */

EcfsKeyGiven ecfs_key_given_of (const EcfsKeySecrets *secrets)
{
    if (secrets == NULL)
        return (EcfsKeyGiven){.passphrase = NULL};
    return (EcfsKeyGiven){.passphrase = secrets->passphrase,
                          .code = secrets->code,
                          .identity = secrets->identity,
                          .ask = secrets->ask,
                          .user = secrets->user};
}

static void note_told (void *user, const char *text)
{
    json_array_add_string_element (user, text);
}

static GArray *find_files (const EcfsArchive *archive, JsonArray *told, guint *ret_n_with)
{
    GArray *all = ecfs_key_found_new ();
    *ret_n_with = 0;
    for (size_t i = 0; i < ecfs_archive_n_endpoints (archive); i++) {
        const EcfsArchiveEndpoint *endpoint = ecfs_archive_endpoint (archive, i);
        const EcfsKeyFound where = {.endpoint = endpoint->name,
                                    .zone = endpoint->zone,
                                    .distrusted = endpoint->state == ECFS_ENDPOINT_DISTRUSTED};
        guint before = all->len;
        if (ecfs_archive_endpoint_counts (endpoint))
            ecfs_key_find (endpoint->endpoint, ecfs_catalog_archive (ecfs_archive_catalog (archive)), &where, all,
                           note_told, told);
        *ret_n_with += all->len > before;
    }
    return all;
}

static bool are_the_same (const EcfsKeyRing *one, const EcfsKeyRing *two)
{
    GByteArray *a = ecfs_key_ring_format (one), *b = ecfs_key_ring_format (two);
    bool same = a->len == b->len && memcmp (a->data, b->data, a->len) == 0;
    ecfs_key_forget_array (a);
    ecfs_key_forget_array (b);
    return same;
}

/* Borrowed; NULL: the file does not have it. */
static const EcfsKeySlot *slot_in (const EcfsKeyFile *file, const EcfsUuid *id)
{
    for (guint i = 0; i < file->slots->len; i++) {
        const EcfsKeySlot *slot = g_ptr_array_index (file->slots, i);
        if (ecfs_uuid_equal (&slot->id, id))
            return slot;
    }
    return NULL;
}

/* Why the slot that opens may open nothing tomorrow; NULL: nothing says so. What endpoints have is all that whoever
 * recovers knows; here it is known which slots are to be there. */
static char *find_doubt (EcfsArchive *archive, const GArray *all, const EcfsUuid *slot)
{
    EcfsKeyLosses losses;
    const EcfsKeyShares *now = ecfs_archive_key_shares (archive);
    g_autoptr (GHashTable) any = g_hash_table_new (g_str_hash, g_str_equal);
    g_autoptr (GHashTable) with = g_hash_table_new (g_str_hash, g_str_equal);
    for (guint i = 0; i < all->len; i++) {
        const EcfsKeyFound *found = &g_array_index (all, EcfsKeyFound, i);
        g_hash_table_add (any, (char *) found->zone);
        if (slot_in (&found->file, slot) != NULL)
            g_hash_table_add (with, (char *) found->zone);
    }
    unsigned n_any = g_hash_table_size (any), n_with = g_hash_table_size (with);
    if (now != NULL && slot_in (ecfs_key_shares_file (now), slot) == NULL)
        return g_strdup_printf ("what opens was removed: %u of %u zones have that slot still, until a mount or 'ecfs "
                                "fsck -y' stores the newer key file there",
                                n_with, n_any);
    if (n_with < n_any && ecfs_key_find_losses (archive, &losses, NULL) && n_with <= losses.zones)
        return g_strdup_printf ("what opens is at too few endpoints: %u of %u zones have that slot, and %u may be "
                                "lost; a mount or 'ecfs fsck -y' stores it at the others",
                                n_with, n_any, losses.zones);
    return NULL;
}

static void put_opened (EcfsArchive *archive, const GArray *all, const EcfsKeyOpened *opened, JsonObject *object)
{
    char id[ECFS_UUID_TEXT_SIZE];
    bool same = are_the_same (opened->keys, ecfs_archive_keys (archive));
    g_autofree char *doubt = same ? find_doubt (archive, all, &opened->slot)
                                  : g_strdup ("what opens is not the keys that the archive has now");
    ecfs_uuid_text (&opened->slot, id);
    json_object_set_boolean_member (object, "comes_back", doubt == NULL);
    json_object_set_string_member (object, "kind", ecfs_key_slot_kind_text (opened->kind));
    json_object_set_string_member (object, "id", id);
    for (guint i = 0; i < all->len; i++) {
        const EcfsKeySlot *slot = slot_in (&g_array_index (all, EcfsKeyFound, i).file, &opened->slot);
        if (slot != NULL)
            add_recipient (slot, object);
    }
    if (doubt != NULL)
        json_object_set_string_member (object, "reason", doubt);
}

char *ecfs_key_check (Ecfs *self, const EcfsKeySecrets *secrets, GError **error)
{
    EcfsArchive *archive = self->archive;
    const EcfsKeyRing *keys = ecfs_archive_keys (archive);
    EcfsKeyGiven given = ecfs_key_given_of (secrets);
    EcfsKeyOpened opened;
    guint n_with;
    g_autoptr (GError) why = NULL;
    if (keys == NULL) {
        (void) !ecfs_fail (error, ENOKEY, "%s has no key", ecfs_archive_directory (archive));
        return NULL;
    }
    given.only = true; /* it is what is to be tried */
    renew (archive);
    JsonObject *object = json_object_new ();
    JsonArray *told = json_array_new ();
    g_autoptr (GArray) all = find_files (archive, told, &n_with);
    json_object_set_int_member (object, "endpoints_with_key_file", n_with);
    if (all->len == 0) {
        json_object_set_boolean_member (object, "comes_back", false);
        json_object_set_string_member (object, "reason", "no endpoint has a key file");
    } else if (ecfs_key_open_found (ecfs_catalog_archive (ecfs_archive_catalog (archive)), all, &given, note_told, told,
                                    &opened, &why)) {
        put_opened (archive, all, &opened, object);
        ecfs_key_opened_clear (&opened);
    } else {
        json_object_set_boolean_member (object, "comes_back", false);
        json_object_set_string_member (object, "reason", why->message);
    }
    json_object_set_array_member (object, "told", told);
    return text_of (object);
}
