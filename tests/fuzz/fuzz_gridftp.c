/* What a hostile GridFTP server can send: listings, replies. */
#include "endpoint/gridftp/gridftp_text.h"

#include <stdlib.h>
#include <string.h>

int LLVMFuzzerTestOneInput (const uint8_t *bytes, size_t size);

int LLVMFuzzerTestOneInput (const uint8_t *bytes, size_t size)
{
    static const EcfsGridftpNames names = {.host = "host", .certificates = "/certificates"};
    const char *line = (const char *) bytes;
    EcfsFacts facts;
    if (ecfs_facts_parse (line, size, &facts) &&
        (facts.name < line || facts.name_bytes == 0 || facts.name + facts.name_bytes != line + size ||
         memchr (facts.name, '\0', facts.name_bytes) != NULL || facts.mtime_s < 0 || facts.size > G_MAXINT64))
        abort ();
    g_autofree char *text = g_strndup (line, size);
    if (ecfs_gridftp_errno (550, text) <= 0)
        abort ();
    g_autofree char *said = ecfs_gridftp_explain (text, &names);
    if (strchr (said, '\n') != NULL)
        abort ();
    return 0;
}
