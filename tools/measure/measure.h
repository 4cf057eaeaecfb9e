/* How fast endpoints are, for `ecfs endpoint test` and `ecfs tune`: files in scratch/ that are made and removed. */
#ifndef ECFS_TOOL_MEASURE_H
#define ECFS_TOOL_MEASURE_H

#include "endpoint/endpoint.h"

#define MEASURE_MAX_FILES 8

/* Files of one size with the same content, moved all at once. */
typedef struct MeasureFiles {
    unsigned n;  /* at most MEASURE_MAX_FILES */
    size_t size; /* bytes of each */
    uint8_t *bytes;
    char *names[MEASURE_MAX_FILES];
} MeasureFiles;

MeasureFiles *measure_files_new (unsigned n, size_t size);
void measure_files_free (MeasureFiles *files);
G_DEFINE_AUTOPTR_CLEANUP_FUNC (MeasureFiles, measure_files_free)

/** Seconds since @begin_us (ecfs_now_us ()), more than 0. */
double measure_seconds_since (int64_t begin_us);

/** Writes the files; bytes per second. ETIMEDOUT when they are not there after @patience_us; none is left then. */
bool measure_write (EcfsEndpoint *endpoint, const MeasureFiles *files, int64_t patience_us, double *ret_bytes_per_s,
                    GError **error);
/** Reads them back. EIO when other bytes come, ETIMEDOUT. */
bool measure_read (EcfsEndpoint *endpoint, const MeasureFiles *files, int64_t patience_us, double *ret_bytes_per_s,
                   GError **error);
/** Seconds that the shortest of some questions for the size of the first file takes. EIO when that is another. */
bool measure_round_trip (EcfsEndpoint *endpoint, const MeasureFiles *files, double *ret_seconds, GError **error);
/** Seconds that the shortest of some small appends to a log takes, until it is on the disk there. ENOTSUP: the endpoint
 * keeps no logs. */
bool measure_append (EcfsEndpoint *endpoint, double *ret_seconds, GError **error);
/** Removes all of them that there are, and their directory if nothing else is in it. False: some may be left, whose
 * directory the error names. */
bool measure_remove (EcfsEndpoint *endpoint, const MeasureFiles *files, GError **error);

#endif
