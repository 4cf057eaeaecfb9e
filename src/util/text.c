#include "util/text.h"

#include <string.h>

/* The controls, and what makes a line of a terminal read otherwise than it was written. */
static bool orders (gunichar c)
{
    return c < 0x20 || (c >= 0x7f && c < 0xa0) || c == 0x061c || c == 0x200e || c == 0x200f ||
           (c >= 0x2028 && c <= 0x202e) || (c >= 0x2066 && c <= 0x2069);
}

char *ecfs_text_clean (const char *text, size_t max)
{
    g_autoptr (GString) clean = g_string_new (NULL);
    for (const char *at = text; *at != '\0';) {
        gunichar c = g_utf8_get_char_validated (at, -1);
        bool valid = c != (gunichar) -1 && c != (gunichar) -2;
        size_t size = valid ? (size_t) (g_utf8_next_char (at) - at) : 1;
        bool shown = valid && !orders (c);
        if (clean->len + (shown ? size : 1) > max) {
            g_string_append (clean, "...");
            break;
        }
        g_string_append_len (clean, shown ? at : "?", (gssize) (shown ? size : 1));
        at += size;
    }
    return g_string_free (g_steal_pointer (&clean), FALSE);
}

void ecfs_text_clean_error (GError *error, size_t max)
{
    if (error == NULL)
        return;
    char *clean = ecfs_text_clean (error->message, max);
    g_free (error->message);
    error->message = clean;
}

bool ecfs_text_has_controls (const char *text)
{
    for (; *text != '\0'; text++)
        if (g_ascii_iscntrl (*text))
            return true;
    return false;
}

char *ecfs_shell_word (const char *text)
{
    bool plain = *text != '\0' && *text != '~';
    for (const char *c = text; *c != '\0'; c++)
        plain = plain && (g_ascii_isalnum (*c) || strchr ("/._-+=:@,~%", *c) != NULL);
    return plain ? g_strdup (text) : g_shell_quote (text);
}
