/* Fetching by a descriptor into a file. */
#ifndef ECFS_VERBS_FETCH_H
#define ECFS_VERBS_FETCH_H

#include "verbs/descriptor.h"

/** What @descriptor, which is open, describes, into the file @path, which appears when it is complete. @endpoints: as
 * of ecfs_descriptor_fetch (). */
bool ecfs_fetch_described (const EcfsDescriptor *descriptor, const char *path, const char *const *endpoints,
                           GError **error);

#endif
