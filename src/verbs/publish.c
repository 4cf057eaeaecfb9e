/* export --publish, fetch --dht and locate: descriptors under names in a distributed hash table. */
#include "archive/keys.h"
#include "archive/peered.h"
#include "locate/published.h"
#include "util/io.h"
#include "util/lock.h"
#include "verbs/descriptor_priv.h"
#include "verbs/fetch.h"
#include "verbs/status.h"
#include "verbs/verbs.h"
#include "wire/wire.h"

#include <string.h>

#define PUT_US      (30 * G_USEC_PER_SEC)
#define FIND_US     (30 * G_USEC_PER_SEC)
#define PEERS_US    (5 * G_USEC_PER_SEC)
#define MOUNT_MS    60000
#define NOBODY_TEXT "nobody is known who takes part in the hash table: set dht_bootstrap in ecfs.conf"

/* Publishing */

/* With the key that it has, or a new one. */
static bool make (EcfsArchive *archive, const char *name, const char *path, const char *text,
                  EcfsPublication *ret_publication, GError **error)
{
    EcfsLocated *located = ecfs_archive_located (archive);
    const char *directory = ecfs_archive_directory (archive);
    g_autofree char *nodes = ecfs_located_nodes (located);
    g_autoptr (GError) why = NULL;
    EcfsPublication publication;
    if (ecfs_publication_load (directory, name, &publication, &why)) {
        g_free (publication.name.nodes);
        publication.name.nodes = g_steal_pointer (&nodes);
    } else if (why->code != ENOENT) {
        g_propagate_error (error, g_steal_pointer (&why));
        return false;
    } else if (!ecfs_publication_new (name, ecfs_located_network (located), nodes, &publication, error))
        return false;
    if (ecfs_publication_set_text (&publication, path, text, error) &&
        ecfs_publication_save (&publication, directory, error)) {
        *ret_publication = publication;
        return true;
    }
    ecfs_publication_clear (&publication);
    return false;
}

/* False: there is none that could be asked. */
static bool has_mount (const Ecfs *self)
{
    ecfs_autofd reader =
        self->mounted ? -1 : ecfs_control_connect_reader (ecfs_archive_directory (self->archive), NULL);
    return self->mounted || reader >= 0;
}

/* By one that writes, or follows. */
static bool ask_mount (const Ecfs *self, const char *name, bool withdraws, GError **error)
{
    const char *directory = ecfs_archive_directory (self->archive);
    JsonObject *request = json_object_new ();
    json_object_set_string_member (request, "verb", "publish");
    json_object_set_string_member (request, "name", name);
    json_object_set_boolean_member (request, "withdraw", withdraws);
    g_autoptr (JsonNode) question = json_node_new (JSON_NODE_OBJECT);
    json_node_take_object (question, request);
    g_autoptr (JsonNode) answer = self->mounted ? ecfs_control_ask (directory, question, MOUNT_MS, error)
                                                : ecfs_control_ask_reader (directory, question, MOUNT_MS, error);
    return answer != NULL;
}

/* By a node that ends with this call. */
static bool put_alone (EcfsArchive *archive, const EcfsPublication *publication, GError **error)
{
    EcfsDht *dht = ecfs_located_new_node (ecfs_archive_located (archive), error);
    bool good = dht != NULL && ecfs_published_put (dht, publication, ecfs_now_us () + PUT_US, error);
    ecfs_dht_free (dht);
    return good;
}

char *ecfs_publish (Ecfs *self, const char *path, const char *name, unsigned flags, const EcfsTransferOptions *transfer,
                    bool *ret_has_keys, char **ret_descriptor, char **ret_behind, GError **error)
{
    EcfsPublication publication;
    g_autoptr (GError) why = NULL;
    if (!ecfs_published_is_name (name)) {
        (void) !ecfs_fail (error, EINVAL, "\"%s\" is no name for the hash table: up to %u letters, digits, -, _ and .",
                           name, ECFS_PUBLISHED_NAME_MAX);
        return NULL;
    }
    char *text = ecfs_export (self, path, flags, transfer, ret_has_keys, error);
    bool good = text != NULL && make (self->archive, name, path, text, &publication, error);
    if (!good || ret_descriptor == NULL) {
        if (text != NULL)
            ecfs_key_forget (text, strlen (text));
        g_clear_pointer (&text, g_free);
    }
    if (!good)
        return NULL;
    if (ret_descriptor != NULL)
        *ret_descriptor = text;
    bool is_put =
        has_mount (self) ? ask_mount (self, name, false, &why) : put_alone (self->archive, &publication, &why);
    *ret_behind = is_put ? NULL : g_strdup (publication.name.nodes == NULL ? NOBODY_TEXT : why->message);
    char *capability = ecfs_published_name_format (&publication.name);
    ecfs_publication_clear (&publication);
    return capability;
}

bool ecfs_withdraw (Ecfs *self, const char *name, GError **error)
{
    EcfsPublication publication;
    const char *directory = ecfs_archive_directory (self->archive);
    g_autoptr (GError) why = NULL;
    if (!ecfs_publication_load (directory, name, &publication, &why)) {
        if (why->code == ENOENT)
            return ecfs_fail (error, ENOENT, "%s: nothing is published under this name here", name);
        g_propagate_error (error, g_steal_pointer (&why));
        return false;
    }
    EcfsDht *dht = NULL;
    bool asks = has_mount (self);
    bool good = asks ? ask_mount (self, name, true, error)
                     : (dht = ecfs_located_new_node (ecfs_archive_located (self->archive), error)) != NULL &&
                           ecfs_published_withdraw (dht, &publication, directory, ecfs_now_us () + PUT_US, error);
    if (!good && dht == NULL) /* by a mount it may have been removed already; what is to be said is why not */
        (void) ecfs_publication_remove (directory, name, NULL);
    ecfs_dht_free (dht);
    ecfs_publication_clear (&publication);
    return good;
}

/* Finding */

static EcfsDht *node_of (const EcfsPublishedName *name, const char *nodes, GError **error)
{
    const EcfsDhtParams params = {.network = name->network, .bootstrap = nodes != NULL ? nodes : name->nodes};
    if (params.bootstrap != NULL)
        return ecfs_dht_new (&params, error);
    (void) !ecfs_fail (error, EINVAL, "%s: this name tells nobody who takes part in the hash table: give --node",
                       name->name);
    return NULL;
}

static EcfsDescriptor *find (const EcfsPublishedName *name, const char *nodes, uint64_t *ret_counter, GError **error)
{
    EcfsDht *dht = node_of (name, nodes, error);
    if (dht == NULL)
        return NULL;
    char *text = ecfs_published_find (dht, name, ecfs_now_us () + FIND_US, ret_counter, error);
    ecfs_dht_free (dht);
    if (text == NULL)
        return NULL;
    EcfsDescriptor *descriptor = ecfs_descriptor_parse (text, strlen (text), error);
    ecfs_key_forget (text, strlen (text));
    g_free (text);
    if (descriptor == NULL)
        (void) !ecfs_prefix (error, "%s", name->name);
    return descriptor;
}

/* Stripes are never changed: what is published and not there was deleted since. @why is taken. */
static bool tell_why (const EcfsPublishedName *name, GError *why, GError **error)
{
    const int code = why->code;
    g_propagate_error (error, why);
    return code == ENODATA &&
           ecfs_prefix (error,
                        "what is published as %s is not there any more; its owner has replaced or removed the file "
                        "since, or lost it, and can publish it again",
                        name->name);
}

bool ecfs_fetch_published (const char *capability, const char *nodes, const char *path, const char *const *endpoints,
                           const char *keys_path, GError **error)
{
    uint64_t counter;
    GError *why = NULL;
    EcfsPublishedName name;
    if (!ecfs_published_name_parse (capability, &name, error))
        return false;
    g_autoptr (EcfsKeyRing) keys = keys_path == NULL ? NULL : ecfs_keys_read (keys_path, error);
    g_autoptr (EcfsDescriptor) descriptor =
        keys_path != NULL && keys == NULL ? NULL : find (&name, nodes, &counter, error);
    bool good = descriptor != NULL &&
                (ecfs_descriptor_open (descriptor, keys, error) || ecfs_prefix (error, "%s", name.name)) &&
                (ecfs_fetch_described (descriptor, path, endpoints, &why) || tell_why (&name, why, error));
    ecfs_published_name_clear (&name);
    return good;
}

/* Telling */

static void add_hex (JsonObject *to, const char *member, const uint8_t *bytes, size_t size)
{
    g_autofree char *text = ecfs_descriptor_hex (bytes, size);
    json_object_set_string_member (to, member, text);
}

static JsonObject *describe_stripe (const EcfsDescriptor *descriptor, const EcfsObjectRow *row,
                                    const EcfsStripeRow *stripe)
{
    char name[ECFS_STRIPE_NAME_SIZE];
    JsonObject *facts = json_object_new ();
    const EcfsDescriptorEndpoint *endpoint = descriptor->endpoints->pdata[stripe->endpoint];
    ecfs_stripe_name (&row->uuid, stripe->index, stripe->instance, name);
    g_autofree char *url =
        g_strdup_printf ("%s%s%s", endpoint->url, g_str_has_suffix (endpoint->url, "/") ? "" : "/", name);
    json_object_set_int_member (facts, "stripe", stripe->index);
    ecfs_status_add_text (facts, "endpoint", endpoint->name);
    ecfs_status_add_text (facts, "url", url);
    json_object_set_int_member (facts, "size", (int64_t) stripe->size);
    add_hex (facts, "digest", stripe->digest, sizeof stripe->digest);
    return facts;
}

static JsonObject *describe_object (const EcfsDescriptor *descriptor, const EcfsDescriptorObject *object)
{
    char uuid[ECFS_UUID_TEXT_SIZE];
    const EcfsObjectRow *row = object->row;
    JsonObject *facts = json_object_new ();
    JsonArray *stripes = json_array_new ();
    ecfs_uuid_text (&row->uuid, uuid);
    json_object_set_string_member (facts, "uuid", uuid);
    ecfs_status_add_text (facts, "code", row->code);
    json_object_set_int_member (facts, "size", (int64_t) row->size);
    add_hex (facts, "digest", row->digest, sizeof row->digest);
    if (row->has_sha256)
        add_hex (facts, "sha256", row->sha256, sizeof row->sha256);
    json_object_set_boolean_member (facts, "encrypted", object->units != NULL);
    for (guint i = 0; i < row->stripes->len; i++)
        json_array_add_object_element (
            stripes, describe_stripe (descriptor, row, &g_array_index (row->stripes, EcfsStripeRow, i)));
    json_object_set_array_member (facts, "stripes", stripes);
    return facts;
}

static JsonObject *describe (const EcfsPublishedName *name, uint64_t counter, const EcfsDescriptor *descriptor)
{
    char archive[ECFS_UUID_TEXT_SIZE];
    JsonObject *facts = json_object_new ();
    JsonArray *objects = json_array_new ();
    ecfs_uuid_text (&descriptor->archive, archive);
    ecfs_status_add_text (facts, "name", name->name);
    json_object_set_int_member (facts, "counter", (int64_t) MIN (counter, INT64_MAX));
    json_object_set_string_member (facts, "archive", archive);
    ecfs_status_add_text (facts, "path", descriptor->path);
    json_object_set_int_member (facts, "size", (int64_t) descriptor->size);
    json_object_set_boolean_member (facts, "has_keys", ecfs_descriptor_has_keys (descriptor));
    for (guint i = 0; i < descriptor->objects->len; i++)
        json_array_add_object_element (objects, describe_object (descriptor, descriptor->objects->pdata[i]));
    json_object_set_array_member (facts, "objects", objects);
    return facts;
}

/* Those that are announced: who has the archive's key can ask them. */
static JsonArray *peers_of (EcfsArchive *archive, GError **error)
{
    int64_t deadline_us = ecfs_now_us () + PEERS_US;
    EcfsDht *dht = ecfs_located_new_node (ecfs_archive_located (archive), error);
    EcfsLocate *locate = dht == NULL ? NULL : ecfs_located_new_peers (ecfs_archive_located (archive), dht, error);
    GPtrArray *found = locate == NULL ? NULL : ecfs_locate_find (locate, ECFS_PEERS_MAX, deadline_us, error);
    JsonArray *peers = found == NULL ? NULL : json_array_new ();
    for (guint i = 0; found != NULL && i < found->len; i++)
        json_array_add_string_element (peers, found->pdata[i]);
    g_clear_pointer (&found, g_ptr_array_unref);
    ecfs_locate_free (locate);
    ecfs_dht_free (dht);
    return peers;
}

char *ecfs_locate (const char *capability, const char *nodes, Ecfs *peers_of_archive, GError **error)
{
    uint64_t counter = 0;
    EcfsPublishedName name;
    if (!ecfs_published_name_parse (capability, &name, error))
        return NULL;
    g_autoptr (EcfsDescriptor) descriptor = find (&name, nodes, &counter, error);
    g_autoptr (JsonObject) facts = descriptor == NULL ? NULL : describe (&name, counter, descriptor);
    ecfs_published_name_clear (&name);
    if (facts == NULL)
        return NULL;
    JsonArray *peers = peers_of_archive == NULL ? NULL : peers_of (peers_of_archive->archive, error);
    if (peers_of_archive != NULL && peers == NULL)
        return NULL;
    if (peers != NULL)
        json_object_set_array_member (facts, "peers", peers);
    g_autoptr (JsonNode) node = json_node_alloc ();
    json_node_init_object (node, facts);
    return json_to_string (node, TRUE);
}
