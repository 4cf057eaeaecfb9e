/* Changing keys of an ecfs.conf that people wrote: comments, order and everything else stay as they are. */
#include "archive/common.h"
#include "archive/config.h"
#include "util/io.h"

#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>

#define CONFIG_MAX_SIZE (1u << 20)

/* Where the comment of a line begins: "#" at the start or behind white space; else at its end. */
static size_t comment_at (const char *line)
{
    for (size_t i = 0; line[i] != '\0'; i++)
        if (line[i] == '#' && (i == 0 || g_ascii_isspace (line[i - 1])))
            return i;
    return strlen (line);
}

/* The title when @line begins a section, as parsing sees it, else NULL; g_free (). */
static char *title_of (const char *line)
{
    g_autofree char *text = g_strstrip (g_strndup (line, comment_at (line)));
    size_t size = strlen (text);
    if (size < 2 || text[0] != '[' || text[size - 1] != ']')
        return NULL;
    text[size - 1] = '\0';
    char *title = g_strstrip (text + 1);
    if (!g_str_has_prefix (title, "endpoint "))
        return g_strdup (title);
    return g_strconcat ("endpoint ", g_strchug (title + strlen ("endpoint ")), NULL);
}

/* Whether @line gives @key; where its value begins and ends. */
static bool find_value (const char *line, const char *key, size_t *ret_begin, size_t *ret_end)
{
    size_t end = comment_at (line);
    const char *equals = memchr (line, '=', end);
    if (equals == NULL || line[strspn (line, " \t")] == ';')
        return false;
    g_autofree char *name = g_strstrip (g_strndup (line, (size_t) (equals - line)));
    size_t begin = (size_t) (equals - line) + 1;
    while (end > begin && g_ascii_isspace (line[end - 1]))
        end--;
    while (begin < end && g_ascii_isspace (line[begin]))
        begin++;
    *ret_begin = begin;
    *ret_end = end;
    return strcmp (name, key) == 0;
}

char *ecfs_config_edit (const char *text, const char *section, const char *key, const char *value)
{
    g_auto (GStrv) lines = g_strsplit (text, "\n", -1);
    bool inside = false;
    size_t last = SIZE_MAX; /* line of the section that is not empty */
    for (size_t i = 0; lines[i] != NULL; i++) {
        size_t begin, end;
        g_autofree char *title = title_of (lines[i]);
        if (title != NULL)
            inside = strcmp (title, section) == 0;
        if (inside && (title != NULL || strchr (lines[i], '=') != NULL))
            last = i;
        if (!inside || title != NULL || !find_value (lines[i], key, &begin, &end))
            continue;
        char *line = g_strdup_printf ("%.*s%s%s", (int) begin, lines[i], value, lines[i] + end);
        g_free (lines[i]);
        lines[i] = line;
        return g_strjoinv ("\n", lines);
    }
    if (last == SIZE_MAX)
        return NULL;
    const char *end = g_str_has_suffix (lines[last], "\r") ? "\r" : "";
    char *line = g_strdup_printf ("%s\n%s = %s%s", lines[last], key, value, end);
    g_free (lines[last]);
    lines[last] = line;
    return g_strjoinv ("\n", lines);
}

/* The text as parsing would take it, else NULL; takes it. */
static char *checked (char *text, const char *path, GError **error)
{
    g_autoptr (EcfsConfig) config = ecfs_config_parse (text, path, error);
    if (config == NULL)
        g_clear_pointer (&text, g_free);
    return text;
}

/* @text with the changes, checked as a whole; g_free (). */
static char *changed (const char *text, const char *path, const EcfsConfigChange *changes, size_t n, GError **error)
{
    g_autofree char *now = g_strdup (text);
    for (size_t i = 0; i < n; i++) {
        char *next = ecfs_config_edit (now, changes[i].section, changes[i].key, changes[i].value);
        if (next == NULL) {
            g_set_error (error, ECFS_ERROR, ENOENT, "%s: there is no section [%s] any more", path, changes[i].section);
            return NULL;
        }
        g_free (now);
        now = next;
    }
    return checked (g_steal_pointer (&now), path, error);
}

/* Without the lines of a section from its title to its last key, and the empty ones behind that; what is told behind
 * these may be about the next. */
static char *without_section (const char *text, const char *section)
{
    g_auto (GStrv) lines = g_strsplit (text, "\n", -1);
    g_autoptr (GPtrArray) kept = g_ptr_array_new ();
    size_t first = SIZE_MAX, last = 0;
    bool inside = false;
    for (size_t i = 0; lines[i] != NULL; i++) {
        g_autofree char *title = title_of (lines[i]);
        if (title != NULL)
            inside = strcmp (title, section) == 0;
        first = inside && title != NULL ? MIN (first, i) : first;
        if (inside && (title != NULL || memchr (lines[i], '=', comment_at (lines[i])) != NULL))
            last = i;
    }
    for (size_t i = 0; lines[i] != NULL; i++) {
        bool blank = lines[i][strspn (lines[i], " \t\r")] == '\0' && lines[i + 1] != NULL;
        if (first != SIZE_MAX && i == last + 1 && blank)
            last = i;
        if (first == SIZE_MAX || i < first || i > last)
            g_ptr_array_add (kept, lines[i]);
    }
    g_ptr_array_add (kept, NULL);
    return g_strjoinv ("\n", (char **) kept->pdata);
}

/* Puts the text that @change makes of ecfs.conf in its place. */
static bool replace (const char *directory,
                     char *(*change) (const char *text, const char *path, const void *what, GError **error),
                     const void *what, GError **error)
{
    g_autofree char *name = g_build_filename (directory, ECFS_CONFIG_NAME, NULL);
    g_autofree char *previous = g_build_filename (directory, ECFS_CONFIG_NAME ECFS_CONFIG_PREVIOUS, NULL);
    g_autofree char *path = realpath (name, NULL); /* what a link leads to is what people edit */
    g_autofree char *text = NULL;
    struct stat status;
    if (path == NULL || stat (path, &status) != 0)
        return ecfs_fail_errno (error, errno, "%s", name);
    if (!ecfs_read_file (path, CONFIG_MAX_SIZE, &text, NULL, error))
        return false;
    g_autofree char *then = change (text, path, what, error);
    if (then == NULL || strcmp (then, text) == 0)
        return then != NULL;
    if (!ecfs_replace_file_like (previous, text, strlen (text), &status, error))
        return ecfs_prefix (error, "%s stays as it is, because no copy of it can be kept", path);
    return ecfs_replace_file_like (path, then, strlen (then), &status, error);
}

typedef struct Changes {
    const EcfsConfigChange *changes;
    size_t n;
} Changes;

static char *make_changes (const char *text, const char *path, const void *what, GError **error)
{
    const Changes *self = what;
    return changed (text, path, self->changes, self->n, error);
}

bool ecfs_config_rewrite (const char *directory, const EcfsConfigChange *changes, size_t n, GError **error)
{
    const Changes all = {.changes = changes, .n = n};
    return replace (directory, make_changes, &all, error);
}

static char *cut (const char *text, const char *path, const void *what, GError **error)
{
    return checked (without_section (text, what), path, error);
}

bool ecfs_config_remove (const char *directory, const char *section, GError **error)
{
    return replace (directory, cut, section, error);
}
