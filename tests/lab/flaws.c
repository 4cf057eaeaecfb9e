#include "flaws.h"

#include "util/lock.h"

#include <string.h>
#include <sys/stat.h>

typedef struct Rule {
    char operation[16];
    uint64_t nth; /* 0: by chance */
    bool onwards;
    double chance;
    Flaw flaw;
    uint64_t n_seen;
} Rule;

struct Flaws {
    EcfsMutex lock;
    char *path;    /* immutable */
    GArray *rules; /* of Rule; guarded by lock, like all below */
    GRand *random;
    struct timespec read_at;
    off_t read_size;
    ino_t read_ino;
};

static const struct {
    const char *word;
    FlawKind kind;
    bool number;
} words[] = {
    {"fail", FLAW_FAIL, true},          {"hang", FLAW_HANG, false}, {"delay", FLAW_DELAY, true},
    {"truncate", FLAW_TRUNCATE, false}, {"flip", FLAW_FLIP, false}, {"stale", FLAW_STALE, false},
};

static bool parse_when (const char *text, Rule *rule)
{
    char *end;
    double number = g_ascii_strtod (text, &end);
    if (end == text || number <= 0)
        return false;
    if (strcmp (end, "%") == 0)
        rule->chance = number / 100;
    else
        rule->nth = (uint64_t) number;
    rule->onwards = strcmp (end, "+") == 0;
    return rule->chance > 0 || (rule->nth > 0 && (rule->onwards || *end == '\0'));
}

static bool parse_what (char **parts, Rule *rule)
{
    for (size_t i = 0; parts[0] != NULL && i < G_N_ELEMENTS (words); i++) {
        if (strcmp (parts[0], words[i].word) != 0)
            continue;
        rule->flaw.kind = words[i].kind;
        if (!words[i].number)
            return parts[1] == NULL;
        return parts[1] != NULL && parts[2] == NULL &&
               g_ascii_string_to_signed (parts[1], 10, 1, G_MAXINT32, &rule->flaw.number, NULL);
    }
    return false;
}

static void parse_line_locked (Flaws *self, const char *line) ECFS_REQUIRES (self->lock)
{
    g_auto (GStrv) parts = g_strsplit (line, " ", -1);
    Rule rule = {.n_seen = 0};
    guint64 seed;
    if (parts[0] == NULL || parts[0][0] == '#')
        return;
    if (strcmp (parts[0], "seed") == 0 && parts[1] != NULL &&
        g_ascii_string_to_unsigned (parts[1], 10, 0, G_MAXUINT32, &seed, NULL)) {
        g_rand_set_seed (self->random, (guint32) seed);
        return;
    }
    g_strlcpy (rule.operation, parts[0], sizeof rule.operation);
    if (parts[1] == NULL || !parse_when (parts[1], &rule) || !parse_what (parts + 2, &rule))
        g_error ("%s: \"%s\" is no rule; see tests/lab/flaws.h", self->path, line);
    g_array_append_val (self->rules, rule);
}

static void read_rules_locked (Flaws *self) ECFS_REQUIRES (self->lock)
{
    struct stat status = {.st_size = 0};
    if (self->path == NULL || (stat (self->path, &status) != 0 && self->rules->len == 0))
        return;
    if (status.st_ino == self->read_ino && status.st_size == self->read_size &&
        status.st_mtim.tv_sec == self->read_at.tv_sec && status.st_mtim.tv_nsec == self->read_at.tv_nsec)
        return;
    self->read_ino = status.st_ino;
    self->read_size = status.st_size;
    self->read_at = status.st_mtim;
    g_array_set_size (self->rules, 0);
    g_rand_set_seed (self->random, 0);
    g_autofree char *text = NULL;
    if (!g_file_get_contents (self->path, &text, NULL, NULL))
        return;
    g_auto (GStrv) lines = g_strsplit (text, "\n", -1);
    for (char **line = lines; *line != NULL; line++)
        parse_line_locked (self, g_strstrip (*line));
}

Flaws *flaws_new (const char *path)
{
    Flaws *self = g_new0 (Flaws, 1);
    ecfs_mutex_init (&self->lock);
    self->path = g_strdup (path);
    self->rules = g_array_new (FALSE, FALSE, sizeof (Rule));
    self->random = g_rand_new_with_seed (0);
    return self;
}

void flaws_free (Flaws *self)
{
    if (self == NULL)
        return;
    g_array_unref (self->rules);
    g_rand_free (self->random);
    g_free (self->path);
    ecfs_mutex_clear (&self->lock);
    g_free (self);
}

Flaw flaws_next (Flaws *self, const char *operation)
{
    Flaw flaw = {.kind = FLAW_NONE};
    ecfs_mutex_lock (&self->lock);
    read_rules_locked (self);
    for (guint i = 0; i < self->rules->len; i++) {
        Rule *rule = &g_array_index (self->rules, Rule, i);
        if (strcmp (rule->operation, operation) != 0 && strcmp (rule->operation, "any") != 0)
            continue;
        rule->n_seen++;
        bool met = rule->nth == 0  ? g_rand_double (self->random) < rule->chance
                   : rule->onwards ? rule->n_seen >= rule->nth
                                   : rule->n_seen == rule->nth;
        if (met && flaw.kind == FLAW_NONE)
            flaw = rule->flaw;
    }
    ecfs_mutex_unlock (&self->lock);
    return flaw;
}
