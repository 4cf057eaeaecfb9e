/* What rclone writes: lines of its log and of its lists, and figures of space, much of it words of servers. */
#include "endpoint/rclone/rclone_text.h"

#include <glib.h>
#include <string.h>

int LLVMFuzzerTestOneInput (const uint8_t *bytes, size_t size);

int LLVMFuzzerTestOneInput (const uint8_t *bytes, size_t size)
{
    const char *text = (const char *) bytes;
    EcfsRcloneLine line;
    EcfsRcloneItem item;
    uint64_t free_bytes;
    unsigned major, minor;
    ecfs_rclone_line_parse (text, size, &line);
    g_assert_nonnull (line.message);
    g_assert_null (strpbrk (line.message, "\r\n\033"));
    (void) ecfs_rclone_meaning (line.message);
    (void) ecfs_rclone_version_parse (line.message, &major, &minor);
    ecfs_rclone_line_clear (&line);
    if (ecfs_rclone_item_parse (text, size, &item)) {
        g_assert_nonnull (item.path);
        ecfs_rclone_item_clear (&item);
    }
    (void) ecfs_rclone_free_parse (text, size, &free_bytes);
    return 0;
}
