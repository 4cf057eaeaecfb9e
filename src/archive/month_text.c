#include "archive/month_text.h"

#include <string.h>

#define GROUP    "month"
#define NAME     "name"
#define REQUESTS "requests"
#define EGRESS   "egress"

/* Absent is 0. */
static bool number_of (GKeyFile *file, const char *group, const char *key, uint64_t *ret_number, GError **error)
{
    guint64 number = 0;
    g_autofree char *text = g_key_file_get_value (file, group, key, NULL);
    if (text != NULL && !g_ascii_string_to_unsigned (text, 10, 0, INT64_MAX, &number, NULL))
        return ecfs_fail (error, EBADMSG, "%s of %s is no number", key, group);
    *ret_number = number;
    return true;
}

bool ecfs_month_file_use (GKeyFile *file, const char *uuid, EcfsMonthUse *ret_use, GError **error)
{
    EcfsMonthUse use;
    if (!number_of (file, uuid, REQUESTS, &use.requests, error) ||
        !number_of (file, uuid, EGRESS, &use.egress_bytes, error))
        return false;
    *ret_use = use;
    return true;
}

void ecfs_month_file_put (GKeyFile *file, const char *uuid, const EcfsMonthUse *use)
{
    g_key_file_set_uint64 (file, uuid, REQUESTS, MIN (use->requests, INT64_MAX));
    g_key_file_set_uint64 (file, uuid, EGRESS, MIN (use->egress_bytes, INT64_MAX));
}

GKeyFile *ecfs_month_file_parse (const char *text, size_t size, const char *month, GError **error)
{
    g_autoptr (GKeyFile) file = g_key_file_new ();
    g_autoptr (GError) why = NULL;
    if (size > 0 && !g_key_file_load_from_data (file, text, size, G_KEY_FILE_KEEP_COMMENTS, &why)) {
        (void) !ecfs_fail (error, EBADMSG, "%s", why->message); /* told by NULL */
        return NULL;
    }
    g_autofree char *name = g_key_file_get_value (file, GROUP, NAME, NULL);
    if (size > 0 && name == NULL) {
        (void) !ecfs_fail (error, EBADMSG, "it names no month"); /* likewise */
        return NULL;
    }
    if (size > 0 && strcmp (name, month) == 0)
        return g_steal_pointer (&file);
    GKeyFile *fresh = g_key_file_new ();
    g_key_file_set_value (fresh, GROUP, NAME, month);
    return fresh;
}
