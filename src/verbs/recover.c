#include "recover/recover.h"
#include "archive/catalog_place.h"
#include "archive/common.h"
#include "archive/keys.h"
#include "archive/places_gone.h"
#include "catalog/marks.h"
#include "ecfs/ecfs.h"
#include "util/units.h"
#include "verbs/init.h"
#include "verbs/key.h"
#include "verbs/past.h"
#include "verbs/recovery.h"

#include <json-glib/json-glib.h>

#include <string.h>

#define MARKS_TOLD 20

/* What words make of endpoints and settings; @given, whose elements are g_free ()d, gets the keys that were set and a
 * NULL. */
static EcfsConfig *config_of (const EcfsRecovery *what, GPtrArray *given, GError **error)
{
    g_autoptr (EcfsConfig) config = ecfs_config_new ();
    if (what->code != NULL) {
        if (!ecfs_config_set (config, "code", what->code, error))
            return NULL;
        g_ptr_array_add (given, g_strdup ("code"));
    }
    for (const char *const *setting = what->settings; setting != NULL && *setting != NULL; setting++) {
        if (!ecfs_config_add_setting (config, *setting, error))
            return NULL;
        g_ptr_array_add (given, g_strndup (*setting, strcspn (*setting, "=")));
    }
    for (const char *const *text = what->endpoints; text != NULL && *text != NULL; text++)
        if (!ecfs_config_add_endpoint_text (config, *text, error))
            return NULL;
    g_ptr_array_add (given, NULL);
    if (config->endpoints->len == 0) {
        (void) !ecfs_fail (error, EINVAL, "name the endpoints that are there, each as NAME=URL");
        return NULL;
    }
    return ecfs_config_check (config, error) ? g_steal_pointer (&config) : NULL;
}

static JsonObject *facts_of (const EcfsRecovered *recovered)
{
    char uuid[ECFS_UUID_TEXT_SIZE];
    JsonObject *object = json_object_new ();
    ecfs_uuid_text (&recovered->archive, uuid);
    json_object_set_string_member (object, "archive", uuid);
    json_object_set_int_member (object, "epoch", recovered->epoch);
    json_object_set_int_member (object, "sequence", (int64_t) recovered->sequence);
    if (recovered->sequence > 0)
        json_object_set_int_member (object, "recovery_point_ns", recovered->time_ns);
    json_object_set_boolean_member (object, "snapshot", recovered->has_snapshot);
    json_object_set_int_member (object, "records", (int64_t) recovered->n_records);
    json_object_set_int_member (object, "files", (int64_t) recovered->n_files);
    json_object_set_int_member (object, "unfinished", (int64_t) recovered->n_unfinished);
    json_object_set_int_member (object, "refused_records", (int64_t) recovered->n_refused);
    json_object_set_int_member (object, "hinted", (int64_t) recovered->n_hinted);
    json_object_set_int_member (object, "set_apart", (int64_t) recovered->n_set_apart);
    json_object_set_int_member (object, "partial", (int64_t) recovered->n_partial);
    json_object_set_int_member (object, "lost", (int64_t) recovered->n_lost);
    json_object_set_int_member (object, "incomplete_objects", (int64_t) recovered->n_lost_strays);
    json_object_set_int_member (object, "foreign_stripes", (int64_t) recovered->n_foreign);
    json_object_set_int_member (object, "endpoints_known", (int64_t) recovered->n_known);
    json_object_set_int_member (object, "endpoints_given", (int64_t) recovered->n_given);
    ecfs_uuid_text (&recovered->key, uuid);
    if (!ecfs_uuid_is_nil (&recovered->key))
        json_object_set_string_member (object, "key", uuid);
    if (*recovered->writer != '\0')
        json_object_set_string_member (object, "last_host", recovered->writer);
    JsonArray *doubted = json_array_new ();
    for (guint i = 0; recovered->doubted != NULL && i < recovered->doubted->len; i++)
        json_array_add_string_element (doubted, g_ptr_array_index (recovered->doubted, i));
    json_object_set_array_member (object, "endpoints_doubted", doubted);
    return object;
}

/* The marks' names, as far as they are to be told; g_free () */
static char *names_of (const GArray *marks)
{
    g_autoptr (GString) names = g_string_new (NULL);
    for (guint i = 0; i < marks->len && i < MARKS_TOLD; i++)
        g_string_append_printf (names, "%s%s", i == 0 ? "; there are: " : ", ",
                                g_array_index (marks, EcfsMark, i).name);
    return g_string_free (g_steal_pointer (&names), FALSE);
}

/* What comes after a moment is not in the archive that is made of it, nor are the marks. */
static void tell_ending (const GArray *marks, const EcfsMark *at, const EcfsRecover *order)
{
    g_autoptr (GString) names = g_string_new (NULL);
    for (guint i = 0; i < marks->len; i++) {
        const EcfsMark *mark = &g_array_index (marks, EcfsMark, i);
        if (mark->sequence > at->sequence)
            g_string_append_printf (names, "%s%s", names->len == 0 ? "" : ", ", mark->name);
    }
    if (names->len == 0 || order->read_only || order->tell == NULL)
        return;
    g_autofree char *text =
        g_strdup_printf ("marks of later moments end: %s. What they keep stays at the endpoints, and "
                         "their times show it, until 'ecfs fsck --prune' or 'ecfs prune'",
                         names->str);
    order->tell (order->user, text);
}

/* What the catalog in a directory says of a mark. */
static bool read_mark (const char *directory, const char *name, EcfsRecover *order, GError **error)
{
    g_autofree char *path = ecfs_catalog_place_in (directory, error);
    EcfsCatalog *catalog = path == NULL ? NULL : ecfs_catalog_open (path, ECFS_CATALOG_READONLY, error);
    g_autoptr (GArray) marks = catalog == NULL ? NULL : ecfs_catalog_marks (catalog, error);
    (void) ecfs_catalog_close (catalog, NULL); /* it was only read */
    for (guint i = 0; marks != NULL && i < marks->len; i++) {
        const EcfsMark *mark = &g_array_index (marks, EcfsMark, i);
        if (strcmp (mark->name, name) != 0)
            continue;
        order->at_ns = mark->time_ns;
        order->at_sequence = mark->sequence;
        tell_ending (marks, mark, order);
        return true;
    }
    if (marks == NULL)
        return false;
    g_autofree char *names = names_of (marks);
    return ecfs_past_moment (name, &order->at_ns, error) ||
           ecfs_prefix (error, "endpoints know of no mark of that name%s, and", names);
}

/* Makes the names of now from the endpoints, in a directory that is gone afterwards, to see what they say of a mark. */
static bool find_mark (const char *name, EcfsRecover *order, GError **error)
{
    EcfsRecover now = *order;
    EcfsRecovered recovered;
    g_autofree char *directory = g_dir_make_tmp ("ecfs-recover-XXXXXX", error);
    if (directory == NULL)
        return false;
    now.directory = directory;
    now.read_only = now.names_only = true;
    now.dry_run = false;
    now.tell = NULL; /* what there is to say is said of the moment itself */
    bool made = ecfs_archive_recover (&now, &recovered, error);
    ecfs_recovered_clear (&recovered);
    bool found = made && read_mark (directory, name, order, error);
    ecfs_archive_empty_directory (directory, true);
    return found;
}

static bool find_moment (const char *at, EcfsRecover *order, GError **error)
{
    int64_t ns;
    if (!ecfs_parse_moment (at, &ns) && ecfs_mark_check (at, NULL))
        return find_mark (at, order, error);
    return ecfs_past_moment (at, &order->at_ns, error);
}

char *ecfs_recover_as (const char *directory, const EcfsRecovery *what, const EcfsRecover *base, GError **error)
{
    const EcfsKeyGiven given_keys = ecfs_key_given_of (what->secrets);
    EcfsRecover order = *base;
    order.directory = directory;
    order.given_keys = what->secrets == NULL ? NULL : &given_keys;
    order.believe = what->believe;
    order.distrust = what->distrust;
    order.dry_run = what->dry_run;
    order.read_only = what->read_only;
    order.names_only = what->read_only && what->names_only;
    order.force = what->force;
    order.ask = what->ask;
    order.tell = what->tell;
    order.tick = what->progress;
    order.user = what->user;
    EcfsRecovered recovered;
    if (what->at != NULL && !find_moment (what->at, &order, error))
        return NULL;
    bool good = ecfs_archive_recover (&order, &recovered, error);
    g_autoptr (JsonNode) node = json_node_new (JSON_NODE_OBJECT);
    json_node_take_object (node, facts_of (&recovered));
    ecfs_recovered_clear (&recovered);
    g_autofree char *rules =
        good && !order.dry_run ? ecfs_directory_rules_gone (directory, NULL) : NULL; /* or fsck tells */
    if (rules != NULL && order.tell != NULL)
        order.tell (order.user, rules);
    return good ? json_to_string (node, TRUE) : NULL;
}

char *ecfs_recover (const char *directory, const EcfsRecovery *what, GError **error)
{
    EcfsUuid archive;
    g_autoptr (GPtrArray) given = g_ptr_array_new_with_free_func (g_free);
    g_autoptr (EcfsConfig) config = config_of (what, given, error);
    if (config != NULL && config->catalog != NULL && what->read_only) {
        (void) !ecfs_fail (error, EINVAL,
                           "a directory that only reads has its catalog in a file: leave out --set catalog");
        return NULL;
    }
    if (config == NULL)
        return NULL;
    for (guint i = 0; i < config->endpoints->len; i++)
        if (!ecfs_archive_check_apart (directory, g_ptr_array_index (config->endpoints, i), error))
            return NULL;
    if (what->archive != NULL && !ecfs_uuid_parse (what->archive, &archive)) {
        (void) !ecfs_fail (error, EINVAL, "%s: this is not a UUID", what->archive);
        return NULL;
    }
    g_autoptr (EcfsKeyRing) keys = what->key_file == NULL ? NULL : ecfs_keys_read (what->key_file, error);
    if (what->key_file != NULL && keys == NULL)
        return NULL;
    const EcfsRecover base = {.config = config,
                              .given = (const char *const *) given->pdata,
                              .archive = what->archive == NULL ? NULL : &archive,
                              .keys = keys};
    return ecfs_recover_as (directory, what, &base, error);
}
