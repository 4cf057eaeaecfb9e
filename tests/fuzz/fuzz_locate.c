/* Lines of ecfs-locate, what peers announce, capabilities and heads of what is published; what is read comes back. */
#include "locate/locate.h"
#include "locate/published.h"

#include <string.h>

int LLVMFuzzerTestOneInput (const uint8_t *bytes, size_t size);

static void check_line (const char *text, size_t size)
{
    EcfsLocateLine line, again;
    if (!ecfs_locate_line_parse (text, size, &line))
        return;
    g_autofree char *same = ecfs_locate_line_format (&line);
    g_assert_true (ecfs_locate_line_parse (same, strlen (same) - 1, &again));
    g_autofree char *once_more = ecfs_locate_line_format (&again);
    g_assert_cmpstr (same, ==, once_more);
    g_assert_true (line.bytes == NULL || g_bytes_get_size (line.bytes) <= ECFS_LOCATE_VALUE_MAX);
    ecfs_locate_line_clear (&line);
    ecfs_locate_line_clear (&again);
}

static void check_announced (const char *text, size_t size)
{
    EcfsLocateAnnounced announced, again;
    if (!ecfs_locate_announced_parse (text, size, &announced))
        return;
    g_autofree char *same = ecfs_locate_announced_format (&announced);
    g_assert_true (ecfs_locate_announced_parse (same, strlen (same), &again));
    g_assert_cmpstr (announced.address, ==, again.address);
    g_free (announced.address);
    g_free (again.address);
}

static void check_name (const char *text)
{
    EcfsPublishedName name, again;
    if (!ecfs_published_name_parse (text, &name, NULL))
        return;
    g_autofree char *same = ecfs_published_name_format (&name);
    g_assert_true (ecfs_published_name_parse (same, &again, NULL));
    g_autofree char *once_more = ecfs_published_name_format (&again);
    g_assert_cmpstr (same, ==, once_more);
    ecfs_published_name_clear (&name);
    ecfs_published_name_clear (&again);
}

int LLVMFuzzerTestOneInput (const uint8_t *bytes, size_t size)
{
    unsigned ways;
    g_autofree char *text = g_strndup ((const char *) bytes, size);
    g_autofree EcfsPublishedHead *head = g_new (EcfsPublishedHead, 1);
    const EcfsPublishedName name = {.name = (char *) "a"};
    check_line ((const char *) bytes, size);
    check_announced ((const char *) bytes, size);
    check_name (text);
    g_assert_false (ecfs_published_head_open (&name, bytes, size, head)); /* nobody has that key */
    g_free (ecfs_locate_list_split (text, &ways));
    return 0;
}
