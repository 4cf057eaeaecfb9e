#include "archive/places_rule.h"

#include "util/error.h"

#include <string.h>

#define NONE "none"
#define ZONE "zone="

static const char *const verbs[] = {
    [ECFS_PLACES_ONLY] = "only:", [ECFS_PLACES_NEVER] = "never:", [ECFS_PLACES_PREFER] = "prefer:"};

static void word_clear (gpointer data)
{
    g_free (((EcfsPlacesWord *) data)->name);
}

static EcfsPlacesRule *rule_new (void)
{
    EcfsPlacesRule *self = g_new0 (EcfsPlacesRule, 1);
    self->words = g_array_new (FALSE, FALSE, sizeof (EcfsPlacesWord));
    g_array_set_clear_func (self->words, word_clear);
    return self;
}

void ecfs_places_rule_free (EcfsPlacesRule *self)
{
    if (self == NULL)
        return;
    g_array_unref (self->words);
    g_free (self);
}

/* As names in ecfs.conf are. */
static bool is_name (const char *text)
{
    for (const char *at = text; *at != '\0'; at++)
        if (!g_ascii_isalnum (*at) && strchr ("-_.", *at) == NULL)
            return false;
    return *text != '\0';
}

static bool add_word (EcfsPlacesRule *self, const char *text, GError **error)
{
    size_t verb = 0;
    while (verb < G_N_ELEMENTS (verbs) && !g_str_has_prefix (text, verbs[verb]))
        verb++;
    const char *name = verb == G_N_ELEMENTS (verbs) ? "" : text + strlen (verbs[verb]);
    bool is_zone = g_str_has_prefix (name, ZONE);
    name += is_zone ? strlen (ZONE) : 0;
    if (!is_name (name)) {
        g_autofree char *shown = g_strescape (text, NULL);
        return ecfs_fail (error, EINVAL,
                          "\"%s\" is none of only:, never: and prefer:, each with the name of an endpoint or with "
                          "zone=ZONE",
                          shown);
    }
    EcfsPlacesWord word = {.verb = (EcfsPlacesVerb) verb, .is_zone = is_zone, .name = g_strdup (name)};
    g_array_append_val (self->words, word);
    return true;
}

EcfsPlacesRule *ecfs_places_rule_parse (const char *bytes, size_t size, GError **error)
{
    if (size > ECFS_PLACES_MAX_BYTES || memchr (bytes, '\0', size) != NULL) {
        (void) !ecfs_fail (error, EINVAL, "a rule for places is a text of at most %u bytes", ECFS_PLACES_MAX_BYTES);
        return NULL;
    }
    g_autofree char *text = g_strndup (bytes, size);
    g_autoptr (EcfsPlacesRule) self = rule_new ();
    g_auto (GStrv) words = g_strsplit_set (text, " \t\n", -1);
    if (strcmp (g_strstrip (text), NONE) == 0)
        return g_steal_pointer (&self);
    for (char **word = words; *word != NULL; word++)
        if (**word != '\0' && !add_word (self, *word, error))
            return NULL;
    if (self->words->len == 0) {
        (void) !ecfs_fail (error, EINVAL, "a rule for places is \"none\", or has a word such as only:zone=ZONE");
        return NULL;
    }
    return g_steal_pointer (&self);
}

/* One word more, unless it is there. */
static void put_word (EcfsPlacesRule *self, EcfsPlacesVerb verb, bool is_zone, const char *name)
{
    for (guint i = 0; i < self->words->len; i++) {
        const EcfsPlacesWord *word = &g_array_index (self->words, EcfsPlacesWord, i);
        if (word->verb == verb && word->is_zone == is_zone && strcmp (word->name, name) == 0)
            return;
    }
    EcfsPlacesWord word = {.verb = verb, .is_zone = is_zone, .name = g_strdup (name)};
    g_array_append_val (self->words, word);
}

EcfsPlacesRule *ecfs_places_rule_copy (const EcfsPlacesRule *self)
{
    EcfsPlacesRule *copy = rule_new ();
    for (guint i = 0; i < self->words->len; i++) {
        const EcfsPlacesWord *word = &g_array_index (self->words, EcfsPlacesWord, i);
        put_word (copy, word->verb, word->is_zone, word->name);
    }
    return copy;
}

EcfsPlacesRule *ecfs_places_rule_replace (const EcfsPlacesRule *self, const char *name, const char *const *by)
{
    bool is_named = false;
    g_autoptr (EcfsPlacesRule) then = rule_new ();
    for (guint i = 0; i < self->words->len; i++) {
        const EcfsPlacesWord *word = &g_array_index (self->words, EcfsPlacesWord, i);
        bool goes = !word->is_zone && strcmp (word->name, name) == 0;
        is_named = is_named || goes;
        for (const char *const *other = by; goes && *other != NULL; other++)
            put_word (then, word->verb, false, *other);
        if (!goes)
            put_word (then, word->verb, word->is_zone, word->name);
    }
    return is_named ? g_steal_pointer (&then) : NULL;
}

char *ecfs_places_rule_format (const EcfsPlacesRule *self)
{
    GString *text = g_string_new (self->words->len == 0 ? NONE : NULL);
    for (guint i = 0; i < self->words->len; i++) {
        const EcfsPlacesWord *word = &g_array_index (self->words, EcfsPlacesWord, i);
        g_string_append_printf (text, "%s%s%s%s", i > 0 ? " " : "", verbs[word->verb], word->is_zone ? ZONE : "",
                                word->name);
    }
    return g_string_free (text, FALSE);
}

bool ecfs_places_word_names (const EcfsPlacesWord *self, const char *endpoint, const char *zone)
{
    return strcmp (self->name, self->is_zone ? zone : endpoint) == 0;
}

EcfsPlacesMark ecfs_places_rule_mark (const EcfsPlacesRule *self, const char *endpoint, const char *zone)
{
    bool has[G_N_ELEMENTS (verbs)] = {false}, is_named[G_N_ELEMENTS (verbs)] = {false};
    for (guint i = 0; i < self->words->len; i++) {
        const EcfsPlacesWord *word = &g_array_index (self->words, EcfsPlacesWord, i);
        has[word->verb] = true;
        is_named[word->verb] = is_named[word->verb] || ecfs_places_word_names (word, endpoint, zone);
    }
    if (is_named[ECFS_PLACES_NEVER] || (has[ECFS_PLACES_ONLY] && !is_named[ECFS_PLACES_ONLY]))
        return ECFS_MARK_FORBIDDEN;
    return is_named[ECFS_PLACES_PREFER] ? ECFS_MARK_PREFERRED : ECFS_MARK_ALLOWED;
}
