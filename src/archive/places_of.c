#include "archive/places_of.h"

#include "archive/common.h"
#include "catalog/past.h"
#include "object/spread.h"

#include <string.h>
#include <sys/stat.h>

void ecfs_ruled_clear (EcfsRuled *self)
{
    g_clear_pointer (&self->marks, g_free);
    g_clear_pointer (&self->text, g_free);
}

char *ecfs_ruled_describe (const EcfsArchive *archive, const EcfsRuled *self)
{
    g_autoptr (GString) names = g_string_new (NULL);
    if (self->marks == NULL)
        return g_strdup ("");
    for (size_t i = 0; self->marks[i] != '\0'; i++)
        if (self->marks[i] != ECFS_MARK_FORBIDDEN)
            g_string_append_printf (names, "%s%s", names->len > 0 ? ", " : "",
                                    ecfs_archive_endpoint (archive, i)->name);
    return g_strdup_printf ("; the rule " ECFS_PLACES_ATTRIBUTE "%s%s%s allows %s%s", self->text != NULL ? " (" : "",
                            self->text != NULL ? self->text : "", self->text != NULL ? ")" : "",
                            names->len > 0 ? "only " : "no endpoint", names->str);
}

EcfsPlacesMark ecfs_mark_at (const char *marks, size_t position)
{
    if (marks == NULL)
        return ECFS_MARK_ALLOWED;
    return position < strlen (marks) ? (EcfsPlacesMark) marks[position] : ECFS_MARK_FORBIDDEN;
}

bool ecfs_marks_prefer (const char *marks)
{
    return marks != NULL && strchr (marks, ECFS_MARK_PREFERRED) != NULL;
}

/* Rules of several directories */

/* What one forbids is forbidden, and what one prefers of the rest is preferred. */
static void add_rule (EcfsArchive *archive, const EcfsPlacesRule *rule, EcfsRuled *ruled)
{
    g_autofree char *text = ecfs_places_rule_format (rule);
    if (ruled->marks == NULL) {
        ruled->marks = g_strnfill (ecfs_archive_n_endpoints (archive), ECFS_MARK_ALLOWED);
        ruled->text = g_steal_pointer (&text);
    } else {
        g_autofree char *before = ruled->text;
        ruled->text = g_strdup_printf ("%s and %s", before, text);
    }
    for (size_t i = 0; ruled->marks[i] != '\0'; i++) {
        const EcfsArchiveEndpoint *endpoint = ecfs_archive_endpoint (archive, i);
        EcfsPlacesMark mark = ecfs_places_rule_mark (rule, endpoint->name, endpoint->zone);
        bool stays = ruled->marks[i] == ECFS_MARK_FORBIDDEN || mark == ECFS_MARK_ALLOWED;
        ruled->marks[i] = stays ? ruled->marks[i] : (char) mark;
    }
}

/* @seen: texts whose rules are in it already. */
static bool add_directory (EcfsArchive *archive, uint64_t dir, GHashTable *seen, EcfsRuled *ruled, GError **error)
{
    g_autoptr (GByteArray) value = NULL;
    if (!ecfs_catalog_xattr_above (ecfs_archive_catalog (archive), dir, ECFS_PLACES_ATTRIBUTE, &value, error))
        return false;
    const char *bytes = value == NULL || value->len == 0 ? "" : (const char *) value->data;
    if (value == NULL || !g_hash_table_add (seen, g_strndup (bytes, value->len)))
        return true;
    g_autoptr (EcfsPlacesRule) rule = ecfs_places_rule_parse (bytes, value->len, error);
    if (rule == NULL) {
        g_autofree char *path = ecfs_catalog_path (ecfs_archive_catalog (archive), dir);
        return ecfs_prefix (error, "the rule " ECFS_PLACES_ATTRIBUTE " that holds for %s", path);
    }
    if (rule->words->len > 0)
        add_rule (archive, rule, ruled);
    return true;
}

bool ecfs_archive_directories_ruled (EcfsArchive *self, const GArray *directories, EcfsRuled *ret_ruled, GError **error)
{
    g_autoptr (GHashTable) seen = g_hash_table_new_full (g_str_hash, g_str_equal, g_free, NULL);
    EcfsRuled ruled = {.marks = NULL};
    bool fine = true;
    for (guint i = 0; fine && i < directories->len; i++)
        fine = add_directory (self, g_array_index (directories, uint64_t, i), seen, &ruled, error);
    if (fine)
        *ret_ruled = ruled;
    else
        ecfs_ruled_clear (&ruled);
    return fine;
}

/* Takes @directories; NULL: why is in @error. */
static bool add_directories (EcfsArchive *archive, GArray *directories, EcfsRuled *ret_ruled, GError **error)
{
    const bool fine = directories != NULL && ecfs_archive_directories_ruled (archive, directories, ret_ruled, error);
    if (directories != NULL)
        g_array_unref (directories);
    return fine;
}

bool ecfs_archive_file_ruled (EcfsArchive *self, uint64_t ino, EcfsRuled *ret_ruled, GError **error)
{
    EcfsAttr attr;
    EcfsCatalog *catalog = ecfs_archive_catalog (self);
    *ret_ruled = (EcfsRuled){.marks = NULL};
    if (!ecfs_catalog_getattr (catalog, ino, &attr, error))
        return false;
    GArray *directories = S_ISDIR (attr.mode) ? g_array_append_val (g_array_new (FALSE, FALSE, sizeof (uint64_t)), ino)
                                              : ecfs_catalog_file_directories (catalog, ino, error);
    return add_directories (self, directories, ret_ruled, error);
}

bool ecfs_archive_object_ruled (EcfsArchive *self, int64_t object, EcfsRuled *ret_ruled, GError **error)
{
    *ret_ruled = (EcfsRuled){.marks = NULL};
    return ecfs_object_is_past (object) ||
           add_directories (self, ecfs_catalog_object_directories (ecfs_archive_catalog (self), object, error),
                            ret_ruled, error);
}

bool ecfs_archive_object_is_mixed (EcfsArchive *self, int64_t object, bool *ret_mixed, GError **error)
{
    g_autofree char *first = NULL;
    bool fine = true, mixed = false;
    g_autoptr (GArray) directories = ecfs_object_is_past (object)
                                         ? g_array_new (FALSE, FALSE, sizeof (uint64_t))
                                         : ecfs_catalog_object_directories (ecfs_archive_catalog (self), object, error);
    for (guint i = 0; directories != NULL && i < directories->len && fine && !mixed; i++) {
        g_autoptr (GHashTable) seen = g_hash_table_new_full (g_str_hash, g_str_equal, g_free, NULL);
        EcfsRuled one = {.marks = NULL};
        fine = add_directory (self, g_array_index (directories, uint64_t, i), seen, &one, error);
        mixed = fine && i > 0 && g_strcmp0 (first, one.marks) != 0;
        if (i == 0)
            first = g_strdup (one.marks);
        ecfs_ruled_clear (&one);
    }
    *ret_mixed = mixed;
    return directories != NULL && fine;
}

/* A new rule */

static bool names_any (const EcfsArchive *archive, const EcfsPlacesWord *word)
{
    for (size_t i = 0; i < ecfs_archive_n_endpoints (archive); i++) {
        const EcfsArchiveEndpoint *endpoint = ecfs_archive_endpoint (archive, i);
        if (endpoint->state != ECFS_ENDPOINT_REMOVED && ecfs_places_word_names (word, endpoint->name, endpoint->zone))
            return true;
    }
    return false;
}

/* How many stripes have no place if all endpoints that @marks (NULL: all) allow answer, and how many of them may
 * vanish. */
static unsigned place_all (EcfsArchive *archive, const EcfsCodec *codec, const char *marks, unsigned *ret_n_allowed,
                           EcfsSpread *ret_spread)
{
    size_t n_places = ecfs_archive_n_endpoints (archive), found[ECFS_CODEC_MAX_N];
    bool all[ECFS_CODEC_MAX_N];
    const unsigned n = ecfs_codec_n (codec);
    g_autofree EcfsPlace *places = g_new0 (EcfsPlace, MAX (n_places, 1));
    *ret_n_allowed = 0;
    for (size_t i = 0; i < n_places; i++) {
        const EcfsArchiveEndpoint *endpoint = ecfs_archive_endpoint (archive, i);
        places[i] = (EcfsPlace){.zone = ecfs_archive_zone_number (archive, i),
                                .usable = ecfs_mark_at (marks, i) != ECFS_MARK_FORBIDDEN &&
                                          endpoint->endpoint != NULL && endpoint->state == ECFS_ENDPOINT_ACTIVE,
                                .room = ECFS_ROOM_UNKNOWN};
        *ret_n_allowed += places[i].usable;
    }
    for (unsigned i = 0; i < n; i++)
        all[i] = true;
    unsigned most = ecfs_archive_config (archive)->allow_double && *ret_n_allowed > 0
                        ? (n + *ret_n_allowed - 1) / *ret_n_allowed
                        : 1;
    unsigned n_without = ecfs_place (places, n_places, all, n, most, 0, found);
    *ret_spread = ecfs_spread (codec, places, found);
    return n_without;
}

static bool fail_placeless (const char *code, const EcfsCodec *codec, const EcfsRuled *ruled, unsigned n_allowed,
                            int why, GError **error)
{
    return ecfs_fail (
        error, why,
        "the rule \"%s\" leaves %u endpoints that take stripes, and the code %s needs %u: change the rule "
        "(" ECFS_PLACES_ATTRIBUTE "), or add endpoints that it allows",
        ruled->text, n_allowed, code, ecfs_codec_n (codec));
}

static bool check_promise (EcfsArchive *archive, const char *code, const EcfsRuled *ruled, GError **error)
{
    unsigned n_allowed, n_all;
    EcfsSpread with, without;
    const EcfsCodec *codec = ruled->marks == NULL ? NULL : ecfs_archive_codec (archive, code, error);
    if (codec == NULL)
        return ruled->marks == NULL;
    if (place_all (archive, codec, ruled->marks, &n_allowed, &with) > 0)
        return fail_placeless (code, codec, ruled, n_allowed, EINVAL, error);
    (void) place_all (archive, codec, NULL, &n_all, &without); /* told by without */
    return with.endpoints >= without.endpoints ||
           ecfs_fail (error, EINVAL,
                      "with the %u endpoints that the rule \"%s\" leaves, content in the code %s survives the loss of "
                      "%d of them, with all %u that of %d",
                      n_allowed, ruled->text, code, with.endpoints, n_all, without.endpoints);
}

bool ecfs_archive_check_rule (EcfsArchive *self, uint64_t dir, const char *value, size_t size, GError **error)
{
    g_autofree char *code = NULL;
    EcfsRuled ruled = {.marks = NULL};
    g_autoptr (EcfsPlacesRule) rule = ecfs_places_rule_parse (value, size, error);
    if (rule == NULL || !ecfs_catalog_get_code (ecfs_archive_catalog (self), dir, &code, error))
        return false;
    for (guint i = 0; i < rule->words->len; i++) {
        const EcfsPlacesWord *word = &g_array_index (rule->words, EcfsPlacesWord, i);
        if (!names_any (self, word))
            return ecfs_fail (error, EINVAL, word->is_zone ? "no endpoint is in a zone %s" : "no endpoint is named %s",
                              word->name);
    }
    if (rule->words->len > 0)
        add_rule (self, rule, &ruled);
    bool good = check_promise (self, code != NULL ? code : ecfs_archive_config (self)->code, &ruled, error);
    ecfs_ruled_clear (&ruled);
    return good;
}

bool ecfs_archive_check_ruled_code (EcfsArchive *self, uint64_t dir, const char *code, GError **error)
{
    EcfsRuled ruled;
    if (!ecfs_archive_file_ruled (self, dir, &ruled, error))
        return false;
    bool good = check_promise (self, code != NULL ? code : ecfs_archive_config (self)->code, &ruled, error);
    ecfs_ruled_clear (&ruled);
    return good;
}

/* What is there */

static bool check_room (EcfsArchive *archive, uint64_t dir, const EcfsRuled *ruled, int why, GError **error)
{
    unsigned n_allowed;
    EcfsSpread spread;
    g_autofree char *code = NULL;
    if (ruled->marks == NULL)
        return true;
    if (!ecfs_catalog_get_code (ecfs_archive_catalog (archive), dir, &code, error))
        return false;
    const char *used = code != NULL ? code : ecfs_archive_config (archive)->code;
    const EcfsCodec *codec = ecfs_archive_codec (archive, used, error);
    return codec != NULL && (place_all (archive, codec, ruled->marks, &n_allowed, &spread) == 0 ||
                             fail_placeless (used, codec, ruled, n_allowed, why, error));
}

bool ecfs_archive_check_rules_of (EcfsArchive *self, uint64_t dir, GError **error)
{
    EcfsRuled ruled;
    if (!ecfs_archive_file_ruled (self, dir, &ruled, error))
        return false;
    bool good = check_room (self, dir, &ruled, ENOTSUP, error);
    ecfs_ruled_clear (&ruled);
    return good;
}

/* Where it has a name, and @dir; not @from, where its only name there goes. */
static GArray *directories_then (EcfsCatalog *catalog, const EcfsAttr *attr, uint64_t dir, uint64_t from,
                                 GError **error)
{
    GArray *directories = ecfs_catalog_file_directories (catalog, attr->ino, error);
    if (directories == NULL)
        return NULL;
    bool is_one_each = directories->len == attr->nlink;
    for (guint i = directories->len; i-- > 0 && is_one_each;)
        if (g_array_index (directories, uint64_t, i) == from)
            g_array_remove_index_fast (directories, i);
    return g_array_append_val (directories, dir);
}

bool ecfs_archive_check_name (EcfsArchive *self, uint64_t ino, uint64_t dir, uint64_t from, GError **error)
{
    EcfsAttr attr;
    EcfsRuled ruled = {.marks = NULL};
    EcfsCatalog *catalog = ecfs_archive_catalog (self);
    if (!ecfs_catalog_getattr (catalog, ino, &attr, error))
        return false;
    if (!S_ISREG (attr.mode) || dir == from)
        return true;
    if (!add_directories (self, directories_then (catalog, &attr, dir, from, error), &ruled, error))
        return false;
    bool good = check_room (self, dir, &ruled, EXDEV, error);
    ecfs_ruled_clear (&ruled);
    return good;
}
