#include "locate/locate_text.h"

#include <inttypes.h>
#include <string.h>

#define MOST_TEXT  512
#define MOST_PARTS 4

static const char *const words[] = {
    [ECFS_LOCATE_BOOTSTRAP] = "bootstrap", [ECFS_LOCATE_PUT] = "put",     [ECFS_LOCATE_GET] = "get",
    [ECFS_LOCATE_READY] = "ready",         [ECFS_LOCATE_VALUE] = "value", [ECFS_LOCATE_DONE] = "done",
    [ECFS_LOCATE_FAILED] = "failed",
};

/* A decimal number as we write it. */
static bool parse_number (const char *text, uint64_t max, uint64_t *ret_number)
{
    return g_ascii_isdigit (text[0]) && (text[0] != '0' || text[1] == '\0') &&
           g_ascii_string_to_unsigned (text, 10, 0, max, ret_number, NULL);
}

static bool parse_port (const char *text, unsigned *ret_port)
{
    uint64_t port;
    bool good = parse_number (text, 65535, &port) && port > 0;
    if (good)
        *ret_port = (unsigned) port;
    return good;
}

static bool parse_key (const char *text, uint8_t *ret_key)
{
    if (strlen (text) != 2 * ECFS_LOCATE_KEY_BYTES)
        return false;
    for (size_t i = 0; i < ECFS_LOCATE_KEY_BYTES; i++) {
        int high = g_ascii_xdigit_value (text[2 * i]), low = g_ascii_xdigit_value (text[2 * i + 1]);
        if (high < 0 || low < 0)
            return false;
        ret_key[i] = (uint8_t) (high << 4 | low);
    }
    return true;
}

/* GLib passes over what it does not know; here that is an error. */
static bool parse_bytes (const char *text, GBytes **ret_bytes)
{
    size_t size;
    g_autofree uint8_t *bytes = g_base64_decode (text, &size);
    g_autofree char *again = bytes == NULL ? NULL : g_base64_encode (bytes, size);
    if (again == NULL || size == 0 || size > ECFS_LOCATE_VALUE_MAX || strcmp (again, text) != 0)
        return false;
    *ret_bytes = g_bytes_new_take (g_steal_pointer (&bytes), size);
    return true;
}

/* Something that a terminal shows as it is. */
static bool parse_text (const char *text, char **ret_text)
{
    size_t size = strlen (text);
    if (size == 0 || size > MOST_TEXT || !g_str_is_ascii (text))
        return false;
    for (const char *c = text; *c != '\0'; c++)
        if (!g_ascii_isprint (*c))
            return false;
    *ret_text = g_strdup (text);
    return true;
}

static bool parse_good (const char *text, bool *ret_good)
{
    *ret_good = strcmp (text, "yes") == 0;
    return *ret_good || strcmp (text, "no") == 0;
}

static bool parse_parts (char *const *parts, guint n, EcfsLocateLine *line)
{
    switch (line->word) {
    case ECFS_LOCATE_BOOTSTRAP:
        return n == 3 && parse_port (parts[1], &line->port) && strchr (parts[2], ' ') == NULL &&
               parse_text (parts[2], &line->text);
    case ECFS_LOCATE_PUT:
        return n == 4 && parse_number (parts[1], UINT64_MAX, &line->number) && parse_key (parts[2], line->key) &&
               parse_bytes (parts[3], &line->bytes);
    case ECFS_LOCATE_GET:
        return n == 3 && parse_number (parts[1], UINT64_MAX, &line->number) && parse_key (parts[2], line->key);
    case ECFS_LOCATE_READY:
        return n == 2 && parse_port (parts[1], &line->port);
    case ECFS_LOCATE_VALUE:
        return n == 3 && parse_number (parts[1], UINT64_MAX, &line->number) && parse_bytes (parts[2], &line->bytes);
    case ECFS_LOCATE_DONE:
        return n == 3 && parse_number (parts[1], UINT64_MAX, &line->number) && parse_good (parts[2], &line->good);
    case ECFS_LOCATE_FAILED:
        return n == 2 && parse_text (parts[1], &line->text);
    }
    return false;
}

bool ecfs_locate_line_parse (const char *text, size_t size, EcfsLocateLine *ret_line)
{
    if (size == 0 || size >= ECFS_LOCATE_LINE_MAX || memchr (text, '\0', size) != NULL)
        return false;
    g_autofree char *all = g_strndup (text, size);
    size_t word = strcspn (all, " ");
    EcfsLocateLine line = {.number = 0};
    bool known = false;
    for (size_t i = 0; i < G_N_ELEMENTS (words) && !known; i++) {
        known = strlen (words[i]) == word && strncmp (words[i], all, word) == 0;
        line.word = known ? (EcfsLocateWord) i : line.word;
    }
    /* What has failed is told in several words. */
    g_auto (GStrv) parts = g_strsplit (all, " ", line.word == ECFS_LOCATE_FAILED ? 2 : MOST_PARTS);
    bool good = known && parse_parts (parts, g_strv_length (parts), &line);
    if (good)
        *ret_line = line;
    else
        ecfs_locate_line_clear (&line);
    return good;
}

static char *key_text (const uint8_t *key)
{
    GString *text = g_string_sized_new (2 * ECFS_LOCATE_KEY_BYTES);
    for (size_t i = 0; i < ECFS_LOCATE_KEY_BYTES; i++)
        g_string_append_printf (text, "%02x", key[i]);
    return g_string_free (text, FALSE);
}

static char *bytes_text (GBytes *bytes)
{
    size_t size;
    const uint8_t *data = g_bytes_get_data (bytes, &size);
    return g_base64_encode (data, size);
}

char *ecfs_locate_line_format (const EcfsLocateLine *line)
{
    g_autofree char *key = key_text (line->key);
    g_autofree char *bytes = line->bytes == NULL ? NULL : bytes_text (line->bytes);
    const char *word = words[line->word];
    switch (line->word) {
    case ECFS_LOCATE_BOOTSTRAP:
        return g_strdup_printf ("%s %u %s\n", word, line->port, line->text);
    case ECFS_LOCATE_PUT:
        return g_strdup_printf ("%s %" PRIu64 " %s %s\n", word, line->number, key, bytes);
    case ECFS_LOCATE_GET:
        return g_strdup_printf ("%s %" PRIu64 " %s\n", word, line->number, key);
    case ECFS_LOCATE_READY:
        return g_strdup_printf ("%s %u\n", word, line->port);
    case ECFS_LOCATE_VALUE:
        return g_strdup_printf ("%s %" PRIu64 " %s\n", word, line->number, bytes);
    case ECFS_LOCATE_DONE:
        return g_strdup_printf ("%s %" PRIu64 " %s\n", word, line->number, line->good ? "yes" : "no");
    case ECFS_LOCATE_FAILED:
        break;
    }
    return g_strdup_printf ("%s %s\n", word, line->text);
}

void ecfs_locate_line_clear (EcfsLocateLine *line)
{
    g_clear_pointer (&line->bytes, g_bytes_unref);
    g_clear_pointer (&line->text, g_free);
}
