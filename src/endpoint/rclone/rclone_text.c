/* What rclone says. */
#include "endpoint/rclone/rclone_text.h"
#include "util/text.h"

#include <json-glib/json-glib.h>
#include <string.h>

/*
 * Whether @text has the shape of one object and nothing around it: the parser of json-glib takes several values, and
 * never frees but the last.
 */
static bool is_one_object (const char *text, size_t size)
{
    static const char outside[] = " \t\r\n:,.+-0123456789abcdefghijklmnopqrstuvwxyzE";
    size_t depth = 0;
    bool in_string = false, ended = false;
    for (size_t i = 0; i < size; i++) {
        const char *at = text + i;
        if (in_string) {
            if (*at == '\\')
                i++;
            else
                in_string = *at != '"';
        } else if (*at == '{' || *at == '[') {
            if (depth++ == 0 && (ended || *at == '['))
                return false;
        } else if (*at == '}' || *at == ']') {
            if (depth-- == 0)
                return false;
            ended = depth == 0;
        } else if (*at == '"' && depth > 0) {
            in_string = true;
        } else if (*at == '\0' || strchr (depth > 0 ? outside : " \t\r\n", *at) == NULL) {
            return false;
        }
    }
    return ended;
}

/* The object in @text, to be unreferenced with *ret_parser; NULL: it is none. */
static JsonObject *parse_object (const char *text, size_t size, JsonParser **ret_parser)
{
    JsonParser *parser = json_parser_new ();
    JsonNode *root = NULL;
    if (size <= ECFS_RCLONE_LINE_MAX && is_one_object (text, size) &&
        json_parser_load_from_data (parser, text, (gssize) size, NULL))
        root = json_parser_get_root (parser);
    *ret_parser = parser;
    return root != NULL && JSON_NODE_HOLDS_OBJECT (root) ? json_node_get_object (root) : NULL;
}

static const char *string_of (JsonObject *object, const char *key)
{
    JsonNode *node = json_object_get_member (object, key);
    return node != NULL && JSON_NODE_HOLDS_VALUE (node) && json_node_get_value_type (node) == G_TYPE_STRING
               ? json_node_get_string (node)
               : NULL;
}

static bool number_of (JsonObject *object, const char *key, int64_t *ret_number)
{
    JsonNode *node = json_object_get_member (object, key);
    if (node == NULL || !JSON_NODE_HOLDS_VALUE (node) || json_node_get_value_type (node) != G_TYPE_INT64)
        return false;
    *ret_number = json_node_get_int (node);
    return true;
}

/* In one line, and without what stands behind "?" in URLs, which can be a signature. g_free (). */
static char *clean (const char *message)
{
    g_autofree char *one_line = g_strdelimit (g_strdup (message), "\r\n\t", ' ');
    g_autofree char *plain = ecfs_text_clean (g_strstrip (one_line), ECFS_WORDS_MAX);
    GString *text = g_string_new (NULL);
    bool in_url = false, hides = false;
    for (const char *at = plain; *at != '\0'; at++) {
        if (strncmp (at, "://", 3) == 0)
            in_url = true;
        if (strchr (" \"'<>", *at) != NULL)
            in_url = hides = false;
        if (!hides)
            g_string_append_c (text, *at);
        hides |= in_url && *at == '?';
    }
    return g_string_free (text, FALSE);
}

void ecfs_rclone_line_parse (const char *text, size_t size, EcfsRcloneLine *ret_line)
{
    g_autoptr (JsonParser) parser = NULL;
    JsonObject *object = parse_object (text, size, &parser);
    const char *message = object == NULL ? NULL : string_of (object, "msg");
    *ret_line = (EcfsRcloneLine){.level = NULL};
    if (message == NULL) {
        g_autofree char *plain = g_strndup (text, MIN (size, ECFS_WORDS_MAX));
        ret_line->message = clean (plain);
        return;
    }
    ret_line->level = g_strdup (string_of (object, "level"));
    ret_line->object = g_strdup (string_of (object, "object"));
    ret_line->message = clean (message);
}

void ecfs_rclone_line_clear (EcfsRcloneLine *line)
{
    g_clear_pointer (&line->level, g_free);
    g_clear_pointer (&line->object, g_free);
    g_clear_pointer (&line->message, g_free);
}

EcfsRcloneMeaning ecfs_rclone_meaning (const char *message)
{
    static const struct {
        const char *words;
        EcfsRcloneMeaning meaning;
    } known[] = {
        {"object not found", ECFS_RCLONE_ABSENT},
        {"directory not found", ECFS_RCLONE_ABSENT},
        {"is a directory not a file", ECFS_RCLONE_ABSENT},
        {"no such file or directory", ECFS_RCLONE_ABSENT},
        {"file does not exist", ECFS_RCLONE_ABSENT},
        {"invalidrange", ECFS_RCLONE_BEYOND},
        {"range not satisfiable", ECFS_RCLONE_BEYOND},
        {"range is not satisfiable", ECFS_RCLONE_BEYOND},
        {"error 416", ECFS_RCLONE_BEYOND},
        {"no space left", ECFS_RCLONE_FULL},
        {"disk full", ECFS_RCLONE_FULL},
        {"insufficient storage", ECFS_RCLONE_FULL},
        {"insufficient_space", ECFS_RCLONE_FULL},
        {"quotaexceeded", ECFS_RCLONE_QUOTA},
        {"quota exceeded", ECFS_RCLONE_QUOTA},
        {"quota has been exceeded", ECFS_RCLONE_QUOTA},
        {"over quota", ECFS_RCLONE_QUOTA},
        {"permission denied", ECFS_RCLONE_REFUSED},
        {"accessdenied", ECFS_RCLONE_REFUSED},
        {"access denied", ECFS_RCLONE_REFUSED},
        {"forbidden", ECFS_RCLONE_REFUSED},
        {"insufficient permission", ECFS_RCLONE_REFUSED},
        {"invalid_grant", ECFS_RCLONE_REFUSED},
        {"unauthorized", ECFS_RCLONE_REFUSED},
        {"dial tcp", ECFS_RCLONE_LINE},
        {"couldn't connect", ECFS_RCLONE_LINE},
        {"connection refused", ECFS_RCLONE_LINE},
        {"connection reset", ECFS_RCLONE_LINE},
        {"connection lost", ECFS_RCLONE_LINE},
        {"connection timed out", ECFS_RCLONE_LINE},
        {"broken pipe", ECFS_RCLONE_LINE},
        {"use of closed network connection", ECFS_RCLONE_LINE},
        {"no such host", ECFS_RCLONE_LINE},
        {"no route to host", ECFS_RCLONE_LINE},
        {"network is unreachable", ECFS_RCLONE_LINE},
        {"name resolution", ECFS_RCLONE_LINE},
        {"i/o timeout", ECFS_RCLONE_LINE},
        {"tls handshake", ECFS_RCLONE_LINE},
        {"deadline exceeded", ECFS_RCLONE_LINE},
        {"cannot fetch token", ECFS_RCLONE_LINE},
        {"eof", ECFS_RCLONE_LINE},
    };
    g_autofree char *low = g_ascii_strdown (message, -1);
    for (size_t i = 0; i < G_N_ELEMENTS (known); i++)
        if (strstr (low, known[i].words) != NULL)
            return known[i].meaning;
    return ECFS_RCLONE_OTHER;
}

bool ecfs_rclone_item_parse (const char *text, size_t size, EcfsRcloneItem *ret_item)
{
    while (size > 0 && strchr (", \t\r", text[size - 1]) != NULL) /* between items */
        size--;
    g_autoptr (JsonParser) parser = NULL;
    JsonObject *object = parse_object (text, size, &parser);
    const char *path = object == NULL ? NULL : string_of (object, "Path");
    const char *time = object == NULL ? NULL : string_of (object, "ModTime");
    JsonNode *is_directory = object == NULL ? NULL : json_object_get_member (object, "IsDir");
    int64_t bytes;
    if (path == NULL || !number_of (object, "Size", &bytes))
        return false;
    g_autoptr (GDateTime) at = time == NULL ? NULL : g_date_time_new_from_iso8601 (time, NULL);
    *ret_item = (EcfsRcloneItem){.path = g_strdup (path),
                                 .size = bytes < 0 ? 0 : (uint64_t) bytes,
                                 .mtime_s = at == NULL ? 0 : g_date_time_to_unix (at)};
    ret_item->is_directory = is_directory != NULL && JSON_NODE_HOLDS_VALUE (is_directory) &&
                             json_node_get_value_type (is_directory) == G_TYPE_BOOLEAN &&
                             json_node_get_boolean (is_directory);
    return true;
}

void ecfs_rclone_item_clear (EcfsRcloneItem *item)
{
    g_clear_pointer (&item->path, g_free);
}

bool ecfs_rclone_free_parse (const char *text, size_t size, uint64_t *ret_free_bytes)
{
    g_autoptr (JsonParser) parser = NULL;
    JsonObject *object = parse_object (text, size, &parser);
    int64_t bytes;
    if (object == NULL || !number_of (object, "free", &bytes) || bytes < 0)
        return false;
    *ret_free_bytes = (uint64_t) bytes;
    return true;
}

bool ecfs_rclone_version_parse (const char *text, unsigned *ret_major, unsigned *ret_minor)
{
    static const char head[] = "rclone/v";
    guint64 major, minor;
    char *end;
    if (!g_str_has_prefix (text, head) || !g_ascii_isdigit (text[sizeof head - 1]))
        return false;
    major = g_ascii_strtoull (text + sizeof head - 1, &end, 10);
    if (*end != '.' || !g_ascii_isdigit (end[1]))
        return false;
    minor = g_ascii_strtoull (end + 1, NULL, 10);
    *ret_major = (unsigned) MIN (major, 1000000);
    *ret_minor = (unsigned) MIN (minor, 1000000);
    return true;
}
