/* Files of the journal at an endpoint, as a whole. Blocks. */
#ifndef ECFS_JOURNAL_JOURNAL_IO_H
#define ECFS_JOURNAL_JOURNAL_IO_H

#include "archive/common.h"
#include "catalog/journal_file.h"

/** The records (EcfsJournalRow) of a file of @size bytes that is as its @name says, and the archive's; else EBADMSG,
 * also where they take more than @most_bytes, or as ecfs_journal_file_parse () and ecfs_endpoint_read_wait ().
 * *ret_bytes: the file itself; NULL: nobody wants it. */
GPtrArray *ecfs_journal_load (EcfsArchive *archive, EcfsEndpoint *endpoint, const char *name, uint64_t size,
                              uint64_t most_bytes, EcfsJournalFile *ret_file, GByteArray **ret_bytes, GError **error);

/** Stores @bytes under @name. EEXIST: there is a file of that name. ECANCELED soon after *@stop became true; NULL: it
 * is never given up. */
bool ecfs_journal_store (EcfsEndpoint *endpoint, const char *name, const GByteArray *bytes, const atomic_bool *stop,
                         GError **error);

#endif
