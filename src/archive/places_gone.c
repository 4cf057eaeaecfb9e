#include "archive/places_gone.h"
#include "archive/catalog_place.h"

#include "archive/common.h"
#include "archive/config.h"

#include <string.h>

#define AT_ONCE 1024
#define TOLD    5 /* rules in a message */

/* What there is: the endpoints of an archive that is open, or of an ecfs.conf. */
typedef struct There {
    EcfsCatalog *catalog;
    const EcfsArchive *archive; /* or … */
    const EcfsConfig *config;   /* … NULL */
} There;

static bool is_there (const There *self, const EcfsPlacesWord *word)
{
    for (size_t i = 0; self->archive != NULL && i < ecfs_archive_n_endpoints (self->archive); i++) {
        const EcfsArchiveEndpoint *endpoint = ecfs_archive_endpoint (self->archive, i);
        if (endpoint->state != ECFS_ENDPOINT_REMOVED && ecfs_places_word_names (word, endpoint->name, endpoint->zone))
            return true;
    }
    for (guint i = 0; self->config != NULL && i < self->config->endpoints->len; i++) {
        const EcfsConfigEndpoint *endpoint = g_ptr_array_index (self->config->endpoints, i);
        if (ecfs_places_word_names (word, endpoint->spec->name, endpoint->zone))
            return true;
    }
    return false;
}

/* NULL: the directory has none (any more), or one that makes no sense. */
static EcfsPlacesRule *rule_of (const There *self, uint64_t dir)
{
    g_autoptr (GByteArray) value = ecfs_catalog_getxattr (self->catalog, dir, ECFS_PLACES_ATTRIBUTE, NULL);
    return value == NULL || value->len == 0 ? NULL
                                            : ecfs_places_rule_parse ((const char *) value->data, value->len, NULL);
}

/* One rule */

static char *describe (const There *self, uint64_t dir, const EcfsPlacesRule *rule)
{
    bool has_zone = false;
    g_autoptr (GString) gone = g_string_new (NULL);
    g_autoptr (EcfsPlacesRule) better = ecfs_places_rule_copy (rule);
    for (guint i = better->words->len; i-- > 0;) {
        EcfsPlacesWord *word = &g_array_index (better->words, EcfsPlacesWord, i);
        if (is_there (self, word))
            continue;
        g_string_append_printf (gone, "%s%s%s", gone->len > 0 ? ", " : "", word->is_zone ? "zone " : "", word->name);
        has_zone = has_zone || word->is_zone;
        /* What must never be in a zone that is not known must still be kept from somewhere. */
        if (word->verb == ECFS_PLACES_PREFER || (word->verb == ECFS_PLACES_NEVER && !word->is_zone)) {
            g_array_remove_index (better->words, i);
            continue;
        }
        word->is_zone = false;
        g_free (word->name);
        word->name = g_strdup ("NAME");
    }
    if (gone->len == 0)
        return NULL;
    g_autofree char *text = ecfs_places_rule_format (rule), *then = ecfs_places_rule_format (better);
    g_autofree char *path = ecfs_catalog_path (self->catalog, dir), *quoted = g_shell_quote (path + 1);
    return g_strdup_printf (
        "the rule \"%s\" names what is gone (%s): write one of what there is, such as, in the mount, "
        "setfattr -n " ECFS_PLACES_ATTRIBUTE " -v '%s' ./%s%s",
        text, gone->str, then, path[1] == '\0' ? "" : quoted,
        has_zone ? "; or, where endpoints are in that zone still, set it with zone = in their sections of ecfs.conf"
                 : "");
}

char *ecfs_archive_rule_gone (EcfsArchive *self, uint64_t dir)
{
    const There there = {.catalog = ecfs_archive_catalog (self), .archive = self};
    g_autoptr (EcfsPlacesRule) rule = rule_of (&there, dir);
    return rule == NULL ? NULL : describe (&there, dir, rule);
}

/* All */

typedef bool Each (void *user, uint64_t dir, const EcfsPlacesRule *rule);

static bool each_rule (const There *self, Each *each, void *user, GError **error)
{
    uint64_t after = 0;
    for (bool more = true; more;) {
        g_autoptr (GArray) dirs =
            ecfs_catalog_xattr_inodes (self->catalog, ECFS_PLACES_ATTRIBUTE, after, AT_ONCE, error);
        if (dirs == NULL)
            return false;
        for (guint i = 0; i < dirs->len; i++) {
            after = g_array_index (dirs, uint64_t, i);
            g_autoptr (EcfsPlacesRule) rule = rule_of (self, after);
            if (rule != NULL && !each (user, after, rule))
                return true;
        }
        more = dirs->len == AT_ONCE;
    }
    return true;
}

typedef struct Telling {
    const There *there;
    GString *text;
    unsigned n;
} Telling;

static bool tell (void *user, uint64_t dir, const EcfsPlacesRule *rule)
{
    Telling *self = user;
    g_autofree char *text = describe (self->there, dir, rule);
    if (text == NULL)
        return true;
    g_autofree char *path = ecfs_catalog_path (self->there->catalog, dir);
    if (self->n++ < TOLD)
        g_string_append_printf (self->text, "%s%s: %s", self->n > 1 ? "; " : "", path, text);
    else
        g_string_append (self->text, "; and others, which 'ecfs fsck' shows");
    return self->n <= TOLD;
}

static char *tell_all (const There *there, GError **error)
{
    Telling telling = {.there = there, .text = g_string_new (NULL)};
    bool good = each_rule (there, tell, &telling, error);
    bool any = good && telling.n > 0;
    return g_string_free (telling.text, !any);
}

char *ecfs_archive_rules_gone (EcfsArchive *self, GError **error)
{
    const There there = {.catalog = ecfs_archive_catalog (self), .archive = self};
    return tell_all (&there, error);
}

char *ecfs_directory_rules_gone (const char *directory, GError **error)
{
    g_autofree char *path = g_build_filename (directory, ECFS_CONFIG_NAME, NULL), *text = NULL;
    if (!g_file_get_contents (path, &text, NULL, error))
        return NULL;
    g_autoptr (EcfsConfig) config = ecfs_config_parse (text, path, error);
    There there = {.config = config};
    g_autofree char *place = config == NULL ? NULL : ecfs_catalog_place (directory, config, error);
    if (place == NULL || (there.catalog = ecfs_catalog_open (place, ECFS_CATALOG_READONLY, error)) == NULL)
        return NULL;
    char *told = tell_all (&there, error);
    (void) ecfs_catalog_close (there.catalog, NULL); /* it was only read */
    return told;
}

/* Replacing */

typedef struct Replacing {
    const char *name;
    const char *const *by;
    GArray *changes; /* of EcfsXattrChange */
} Replacing;

static bool replace (void *user, uint64_t dir, const EcfsPlacesRule *rule)
{
    Replacing *self = user;
    g_autoptr (EcfsPlacesRule) then = ecfs_places_rule_replace (rule, self->name, self->by);
    if (then == NULL)
        return true;
    const EcfsXattrChange change = {.ino = dir, .value = ecfs_places_rule_format (then)};
    g_array_append_val (self->changes, change);
    return true;
}

static void change_clear (gpointer data)
{
    g_free (((EcfsXattrChange *) data)->value);
}

bool ecfs_archive_replace_in_rules (EcfsArchive *self, const char *name, const char *const *by, uint64_t *ret_n,
                                    GError **error)
{
    const There there = {.catalog = ecfs_archive_catalog (self), .archive = self};
    g_autoptr (GArray) changes = g_array_new (FALSE, FALSE, sizeof (EcfsXattrChange));
    g_array_set_clear_func (changes, change_clear);
    Replacing replacing = {.name = name, .by = by, .changes = changes};
    for (const char *const *other = by; *other != NULL; other++)
        if (ecfs_archive_endpoint_named (self, *other, error) == NULL)
            return false;
    if (!each_rule (&there, replace, &replacing, error))
        return false;
    for (guint i = 0; i < changes->len; i++) {
        const EcfsXattrChange *change = &g_array_index (changes, EcfsXattrChange, i);
        g_autofree char *path = ecfs_catalog_path (there.catalog, change->ino);
        if (strlen (change->value) > ECFS_PLACES_MAX_BYTES)
            return ecfs_fail (error, E2BIG, "the rule " ECFS_PLACES_ATTRIBUTE " of %s gets too long: change it by hand",
                              path);
    }
    *ret_n = changes->len;
    return changes->len == 0 ||
           ecfs_catalog_setxattrs (there.catalog, ECFS_PLACES_ATTRIBUTE, (const EcfsXattrChange *) changes->data,
                                   changes->len, error) ||
           ecfs_prefix (error, "rules " ECFS_PLACES_ATTRIBUTE " that name endpoint %s", name);
}
